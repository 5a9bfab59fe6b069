package cli

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"example.com/sash/service/internal/output"
)

// jsonFlag adds --json.
func jsonFlag(f *pflag.FlagSet, into *bool) { f.BoolVar(into, "json", false, "answer in JSON") }

func units(n int64) string { return output.Count(n, "unit") }

func bytesText(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%d kB", n/1000)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}

// instantText writes an instant as the JSON forms do.
func instantText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
