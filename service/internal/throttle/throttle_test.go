package throttle

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneLineASecondIsLoggedWithTheNumberSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := Log{To: slog.New(slog.NewTextHandler(&out, nil))}
		for range 2500 {
			log.Log(slog.LevelError, "no decision", "error", errors.New("gone"))
			time.Sleep(time.Millisecond)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines in 2.5 seconds, want 3:\n%s", len(lines), out.String())
		}
		for i, skipped := range []string{"not_logged_before=0", "not_logged_before=999", "not_logged_before=999"} {
			if !strings.Contains(lines[i], skipped) || !strings.Contains(lines[i], "error=gone") || !strings.Contains(lines[i], "level=ERROR") {
				t.Errorf("line %d: %s, want %s", i, lines[i], skipped)
			}
		}
	})
}

func TestAClockThatGoesBackSilencesNothing(t *testing.T) {
	var log Log
	now := time.Unix(1_800_000_000, 0)
	log.Allow(now)
	if _, ok := log.Allow(now.Add(-time.Hour)); !ok {
		t.Error("nothing is logged for an hour")
	}
}

func TestConcurrentLinesAreLoggedOrCounted(t *testing.T) {
	log, now := Log{Every: time.Minute}, time.Unix(1_800_000_000, 0)
	var logged, skipped atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if before, ok := log.Allow(now); ok {
					logged.Add(1)
					skipped.Add(before)
				}
			}
		})
	}
	wg.Wait()
	if sum := logged.Load() + skipped.Load() + log.skipped.Load(); logged.Load() != 1 || sum != 8000 {
		t.Errorf("%d lines logged, want 1; %d logged or counted, want 8000", logged.Load(), sum)
	}
}
