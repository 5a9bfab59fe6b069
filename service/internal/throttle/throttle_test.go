package throttle

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneErrorASecondIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		errs := Errors{To: slog.New(slog.NewTextHandler(&out, nil))}
		for range 2500 {
			errs.Log("no decision", errors.New("gone"))
			time.Sleep(time.Millisecond)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines in 2.5 seconds, want 3:\n%s", len(lines), out.String())
		}
		for i, skipped := range []string{"not_logged_before=0", "not_logged_before=999", "not_logged_before=999"} {
			if !strings.Contains(lines[i], skipped) || !strings.Contains(lines[i], "error=gone") {
				t.Errorf("line %d: %s, want %s", i, lines[i], skipped)
			}
		}
	})
}
