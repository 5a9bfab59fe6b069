package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

// A candidate has counters of its own, and a bounded log of what it would have refused. An enforced candidate is counted
// and not logged: its refusals are refusals.
func TestACandidateIsCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := servertest.Decider(t, memstore.New(nil), `
domain: d
descriptors:
- key: user
  limits: [50/1h]
  candidate: {limits: [10/1h]}
- key: held
  limits: [50/1h]
  candidate: {limits: [10/1h], enforce_percent: 100}
`)
		registry, text := stats.New(nil), &bytes.Buffer{}
		d.Observe(registry.Observe)
		d.Observe(newCandidates(slog.New(slog.NewTextHandler(text, nil)), false).observe)
		ask := func(key string, times int) {
			for range times {
				if _, err := d.Decide(context.Background(), decide.One("d", []config.Entry{{Key: key, Value: "ann"}}, nil)); err != nil {
					t.Fatal(err)
				}
			}
		}
		ask("user", 60)
		ask("held", 12)
		for name, want := range map[string][4]uint64{"d.user.candidate": {60, 10, 50, 50}, "d.held.candidate": {12, 10, 2, 0}} {
			r := registry.Rule(name)
			if got := [4]uint64{r.Total.Load(), r.Within.Load(), r.Over.Load(), r.Shadow.Load()}; got != want {
				t.Errorf("%s: total, within, over and shadow %v, want %v", name, got, want)
			}
		}
		// Of 60 requests, 10 are within both, 40 only the candidate would have refused, and 10 both.
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 5 || !strings.Contains(lines[0], `rule="d / user" units=1 limit=10/1h retry_after=1h0m0s not_logged_before=0`) || strings.Contains(text.String(), "ann") {
			t.Errorf("%d lines are logged:\n%s", len(lines), text)
		}
		time.Sleep(time.Hour)
		text.Reset()
		ask("user", 11)
		if got := text.String(); !strings.Contains(got, "not_logged_before=35") || strings.Count(got, "\n") != 1 {
			t.Errorf("the next line is %s", got)
		}
	})
}
