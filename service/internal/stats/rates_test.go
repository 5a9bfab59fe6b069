package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

const watchedRules = `
domain: d
descriptors:
- {key: user, limits: [3/1h]}
- {key: soft, limits: [1/1h], shadow_mode: true}
- {key: none}
`

// A world is a decider and the registry that observes it.
type world struct {
	t       *testing.T
	stats   *Registry
	decider *decide.Decider
}

func begin(t *testing.T) *world {
	decider, r := counting(t, watchedRules, memstore.New(nil))
	return &world{t, r, decider}
}

func (w *world) ask(domain, key, value string, cost int64) {
	_, _ = w.decider.Decide(w.t.Context(), decide.One(domain, []config.Entry{{Key: key, Value: value}}, &cost))
}

// Each request counts once, by its outcome, and so does each part under its rule.
func TestRequestsAndRulesAreCountedByOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		for range 5 {
			w.ask("d", "user", "ann", 1) // three are admitted
		}
		w.ask("d", "user", "bob", 9)  // it can never fit
		w.ask("d", "soft", "x", 1)    // admitted
		w.ask("d", "soft", "x", 1)    // would be refused
		w.ask("d", "other", "x", 1)   // no rule
		w.ask("e", "user", "ann", 1)  // no such domain
		w.ask("d", "user", "cyd", -1) // no such cost
		w.decider.Except([]decide.Exception{{Domain: "d", Entries: []config.Entry{{Key: "user", Value: "dan"}}, Until: time.Now().Add(time.Hour)}})
		w.ask("d", "user", "dan", 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = w.stats.Run(ctx) }()
		synctest.Wait()
		snap := w.stats.Now()
		if want := (Counts[int64]{Allowed: 5, Refused: 3, Banned: 1, Shadow: 1, Invalid: 2}); snap.Requests.Count != want {
			t.Errorf("requests: %+v, want %+v", snap.Requests.Count, want)
		}
		want := map[string]Counts[int64]{
			"d.user": {Allowed: 3, Refused: 3, Banned: 1}, "d.soft": {Allowed: 1, Shadow: 1}, unlimited: {Allowed: 1},
		}
		for _, line := range snap.Rules {
			if line.Count != want[line.Rule] {
				t.Errorf("%s: %+v, want %+v", line.Rule, line.Count, want[line.Rule])
			}
			delete(want, line.Rule)
		}
		if len(want) > 0 {
			t.Errorf("there is no series of %v", want)
		}
		stop()
	})
}

// A rate is the mean of the last ten seconds, and the history has the counts of each second.
func TestRatesFollowTheLastSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.stats.Run(ctx) }()
		time.Sleep(Step / 2) // between two rates
		for range 20 {
			for range 4 {
				w.ask("d", "none", "x", 1)
			}
			time.Sleep(Step)
		}
		synctest.Wait()
		snap := w.stats.Now()
		if snap.Requests.Rate.Allowed != 4 || snap.Last.Allowed != 4 || snap.Requests.Count.Allowed != 80 {
			t.Errorf("four a second: %+v, and %+v in the last", snap.Requests, snap.Last)
		}
		time.Sleep(5 * Step)
		synctest.Wait()
		if rate := w.stats.Now().Requests.Rate.Allowed; rate != 2 {
			t.Errorf("after five seconds of nothing the rate is %v, want 2", rate)
		}
		past, sum := w.stats.History(), int64(0)
		for _, s := range past {
			sum += s.Allowed
		}
		if len(past) != 26 || sum != 80 || past[len(past)-1].Allowed != 0 {
			t.Errorf("the history has %d seconds and %d requests, want 26 and 80: %v", len(past), sum, past)
		}
		time.Sleep(2 * historyOf)
		synctest.Wait()
		if n := len(w.stats.History()); n != int(historyOf/Step) {
			t.Errorf("the history has %d seconds, want those of %v", n, historyOf)
		}
		waiting := make(chan bool, 1)
		go func() { _, ok := w.stats.Next(t.Context()); waiting <- ok }()
		synctest.Wait()
		stop()
		if err := <-ended; err != nil || <-waiting {
			t.Error("Next waits after the last snapshot", err)
		}
		if _, ok := w.stats.Next(t.Context()); ok {
			t.Error("Next returns a snapshot after the last one")
		}
	})
}

// A snapshot lists a bounded number of rules, and no count is lost.
func TestSeriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter := New(nil)
		const n = 1500
		var ids []ruleID
		for i := range n {
			ids = append(ids, ruleID{"d", fmt.Sprint(i)})
		}
		counter.rules.Reserve(ids)
		for i := range n {
			rule := &config.Rule{Domain: "d", Label: fmt.Sprint(i)}
			counter.Observe(t.Context(), &decide.Observation{Answers: []decide.Answer{{Rule: rule, Metric: rule.Metric(), Cost: 1, Source: sash.FromStore}}, Allowed: true})
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = counter.Run(ctx) }()
		synctest.Wait()
		stop()
		sum := int64(0)
		for _, line := range counter.Now().Rules {
			sum += line.Count.Sum()
		}
		if lines := len(counter.Now().Rules); lines != 1001 || sum != n {
			t.Errorf("%d series with %d requests, want 1001 and %d", lines, sum, n)
		}
	})
}

// While the store does not answer, what nobody counted is not allowed, what this instance decided over its share is
// named, and a rule without decisions has no refused share.
func TestAnOutageIsNotCountedAsDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := failover.New(broken{errors.New("connection refused")}, &failover.Options{Local: memstore.New(nil)})
		if err != nil {
			t.Fatal(err)
		}
		decider, r := counting(t, `
domain: d
descriptors:
- {key: open, limits: [2/1h], on_unavailable: open}
- {key: closed, limits: [2/1h]}
- {key: local, limits: [2/1h], on_unavailable: local}
- {key: soft, limits: [2/1h], shadow_mode: true}
`, store)
		w := &world{t, r, decider}
		for range 8 {
			for _, key := range []string{"open", "closed", "local", "soft"} {
				w.ask("d", key, "ann", 1)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = r.Run(ctx) }()
		synctest.Wait()
		snap := r.Now()
		if want := (Counts[int64]{Allowed: 2 + 8, Uncounted: 8, Refused: 6, Failed: 8, Local: 8}); snap.Requests.Count != want {
			t.Errorf("requests: %+v, want %+v", snap.Requests.Count, want)
		}
		want := map[string]string{
			"d.open":   `{"allowed":0,"uncounted":8,"refused":0,"banned":0,"shadow":0,"error":0,"invalid":0,"local":0} {"refused":null,"uncounted":1,"error":0}`,
			"d.closed": `{"allowed":0,"uncounted":0,"refused":0,"banned":0,"shadow":0,"error":8,"invalid":0,"local":0} {"refused":null,"uncounted":0,"error":1}`,
			"d.local":  `{"allowed":2,"uncounted":0,"refused":6,"banned":0,"shadow":0,"error":0,"invalid":0,"local":8} {"refused":0.75,"uncounted":0,"error":0}`,
			"d.soft":   `{"allowed":0,"uncounted":8,"refused":0,"banned":0,"shadow":0,"error":0,"invalid":0,"local":0} {"refused":null,"uncounted":1,"error":0}`,
		}
		for _, line := range snap.Rules {
			count, _ := json.Marshal(line.Count)
			share, _ := json.Marshal(line.Share)
			if got := string(count) + " " + string(share); got != want[line.Rule] {
				t.Errorf("%s: %s, want %s", line.Rule, got, want[line.Rule])
			}
			delete(want, line.Rule)
		}
		if len(want) > 0 {
			t.Errorf("there is no series of %v", want)
		}
		stop()
	})
}
