package logs

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

// jsonFlag adds --json.
func jsonFlag(f *pflag.FlagSet, into *bool) { f.BoolVar(into, "json", false, "answer in JSON") }

// print writes an answer: as JSON, or as the text that describe writes.
func (a *app) print(asJSON bool, answer any, describe func(*text)) error {
	if asJSON {
		encoder := json.NewEncoder(a.out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(answer)
	}
	t := &text{to: a.out}
	describe(t)
	return t.err
}

// A text is output for people. After an error of its writer it writes nothing more.
type text struct {
	to  io.Writer
	err error // the first
}

// Write implements io.Writer.
func (t *text) Write(p []byte) (n int, err error) {
	if t.err == nil {
		n, t.err = t.to.Write(p)
	}
	return n, t.err
}

// say writes a line.
func (t *text) say(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// table returns a writer of rows whose columns end with a tab. Its Flush writes them.
func (t *text) table(flags uint) *tabwriter.Writer {
	return tabwriter.NewWriter(t, 0, 0, 2, ' ', flags)
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

func bytesText(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%d kB", n/1000)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}

// printable shortens s and replaces control characters, so that input cannot move the terminal's cursor or fill the
// screen.
func printable(s string) string {
	const most = 70
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
