package live_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/live"
)

const rules = `
domain: d
descriptors:
- {key: user, limits: [3/1h]}
- {key: tried, limits: [1/1h], shadow_mode: true}
- {key: none}
`

type world struct {
	t       *testing.T
	counter *live.Counter
	decider *decide.Decider
}

func begin(t *testing.T) *world {
	cfg, err := config.Parse("x.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	decider, err := decide.New(cfg, memstore.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, live.New(), decider}
	decider.Observe(w.counter.Observe)
	return w
}

func (w *world) ask(domain, key, value string, cost int64) {
	_, _ = w.decider.Decide(w.t.Context(), domain, []config.Entry{{Key: key, Value: value}}, &cost)
}

// Each request is counted once, by what became of it, and each rule by what it was asked.
func TestCountsAreByOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		for range 5 {
			w.ask("d", "user", "ann", 1) // three are admitted
		}
		w.ask("d", "user", "bob", 9)  // it can never fit
		w.ask("d", "tried", "x", 1)   // admitted
		w.ask("d", "tried", "x", 1)   // would be refused
		w.ask("d", "other", "x", 1)   // no rule
		w.ask("e", "user", "ann", 1)  // no such domain
		w.ask("d", "user", "cyd", -1) // no such cost
		w.decider.Except([]decide.Exception{{Domain: "d", Entries: []config.Entry{{Key: "user", Value: "dan"}}, Until: time.Now().Add(time.Hour)}})
		w.ask("d", "user", "dan", 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = w.counter.Run(ctx) }()
		synctest.Wait()
		snap := w.counter.Now()
		if want := (live.By[int64]{Allowed: 5, Refused: 3, Banned: 1, Shadow: 1, Invalid: 2}); snap.Requests.Count != want {
			t.Errorf("requests: %+v, want %+v", snap.Requests.Count, want)
		}
		want := map[string]live.By[int64]{
			"d.user": {Allowed: 3, Refused: 3, Banned: 1}, "d.tried": {Allowed: 1, Shadow: 1}, live.NoRule: {Allowed: 1},
		}
		for _, line := range snap.Rules {
			if line.Count != want[line.Rule] {
				t.Errorf("%s: %+v, want %+v", line.Rule, line.Count, want[line.Rule])
			}
			delete(want, line.Rule)
		}
		if len(want) > 0 {
			t.Errorf("there is no line of %v", want)
		}
		stop()
	})
}

// A rate is the mean of the last ten seconds, and the history is what each second had.
func TestRatesFollowTheLastSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.counter.Run(ctx) }()
		time.Sleep(live.Step / 2) // between two rates
		for range 20 {
			for range 4 {
				w.ask("d", "none", "x", 1)
			}
			time.Sleep(live.Step)
		}
		synctest.Wait()
		snap := w.counter.Now()
		if snap.Requests.Rate.Allowed != 4 || snap.Second.Allowed != 4 || snap.Requests.Count.Allowed != 80 {
			t.Errorf("four a second are told as %+v, and %+v in the last", snap.Requests, snap.Second)
		}
		time.Sleep(5 * live.Step)
		synctest.Wait()
		if rate := w.counter.Now().Requests.Rate.Allowed; rate != 2 {
			t.Errorf("after five seconds of nothing the rate is %v, want 2", rate)
		}
		past, sum := w.counter.History(), int64(0)
		for _, s := range past {
			sum += s.Allowed
		}
		if len(past) != 26 || sum != 80 || past[len(past)-1].Allowed != 0 {
			t.Errorf("the history has %d seconds and %d requests, want 26 and 80: %v", len(past), sum, past)
		}
		time.Sleep(2 * live.Past)
		synctest.Wait()
		if n := len(w.counter.History()); n != int(live.Past/live.Step) {
			t.Errorf("the history has %d seconds, want those of %v", n, live.Past)
		}
		waiting := make(chan bool, 1)
		go func() { _, ok := w.counter.Next(t.Context()); waiting <- ok }()
		synctest.Wait()
		stop()
		if err := <-ended; err != nil || <-waiting {
			t.Error("whoever waits for the next snapshot waits although there is none", err)
		}
		if _, ok := w.counter.Next(t.Context()); ok {
			t.Error("there is a snapshot after the end")
		}
	})
}

// However many configurations and rules there were, memory is bounded, and nothing is lost of the counts.
func TestRulesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter := live.New()
		const n = 1500
		for i := range n {
			rule := &config.Rule{Domain: "d", Path: []config.Entry{{Key: fmt.Sprint(i)}}}
			counter.Observe(t.Context(), &decide.Observation{Answers: []decide.Answer{{Rule: rule, Metric: rule.Metric(), Units: 1, Source: sash.FromStore}}, Allowed: true})
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = counter.Run(ctx) }()
		synctest.Wait()
		stop()
		sum := int64(0)
		for _, line := range counter.Now().Rules {
			sum += line.Count.Sum()
		}
		if lines := len(counter.Now().Rules); lines > 1001 || sum != n {
			t.Errorf("%d lines with %d requests, want at most 1001 and %d", lines, sum, n)
		}
	})
}
