package stats

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

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
- {key: tried, limits: [8/1h], candidate: {limits: [3/1h]}}
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
		for range 5 {
			w.ask("d", "tried", "ann", 1)
		}
		snap := w.stats.Snapshot()
		if want := (Counts{Allowed: 10, Refused: 3, Banned: 1, Shadow: 1, Invalid: 2}); snap.Requests.Count != want {
			t.Errorf("requests: %+v, want %+v", snap.Requests.Count, want)
		}
		want := map[string]Counts{
			"d.user": {Allowed: 3, Refused: 3, Banned: 1}, "d.soft": {Allowed: 1, Shadow: 1}, "d.tried": {Allowed: 5}, unlimited: {Allowed: 1},
		}
		for _, line := range snap.Rules {
			if c := line.Candidate; (c != nil) != (line.Rule == "d.tried") || c != nil && *c != (Tried{5, 2}) {
				t.Errorf("the candidate of %s: %+v", line.Rule, c)
			}
			if line.Count != want[line.Rule] {
				t.Errorf("%s: %+v, want %+v", line.Rule, line.Count, want[line.Rule])
			}
			delete(want, line.Rule)
		}
		if len(want) > 0 {
			t.Errorf("there is no series of %v", want)
		}
	})
}

// While the store does not answer, what nobody counted is not allowed, what this instance decided over its share is
// named.
func TestAnOutageIsNotCountedAsDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *Registry
		store, err := failover.New(broken{errors.New("LOADING Redis is loading")}, &failover.Options{
			Local: memstore.New(nil), OnError: func(err error, _ failover.Kind) { r.StoreFailed(err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		var decider *decide.Decider
		decider, r = counting(t, `
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
		snap := r.Snapshot()
		if want := (Counts{Allowed: 2 + 8, Uncounted: 8, Refused: 6, Failed: 8, Local: 8}); snap.Requests.Count != want {
			t.Errorf("requests: %+v, want %+v", snap.Requests.Count, want)
		}
		want := map[string]Counts{"d.open": {Uncounted: 8}, "d.closed": {Failed: 8}, "d.local": {Allowed: 2, Refused: 6, Local: 8}, "d.soft": {Uncounted: 8}}
		for _, line := range snap.Rules {
			if line.Count != want[line.Rule] {
				t.Errorf("%s: %+v, want %+v", line.Rule, line.Count, want[line.Rule])
			}
			delete(want, line.Rule)
		}
		if len(want) > 0 {
			t.Errorf("there is no series of %v", want)
		}
		is(t, r, "sash_requests_total", "allowed 10\nuncounted 8\nrefused 6\nerror 8")
		is(t, r, "sash_decisions_total", "d error closed policy 8\nd allowed local "+"local 2\nd refused local "+"local 6\nd uncounted open policy 8\nd uncounted soft policy 8")
		is(t, r, "sash_store_failures_total", "loading 32")
	})
}

// A rule's longest wait is the time until the last booking starts, from its first booking on.
func TestTheLongestWaitIsThatOfTheLastBooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(nil)
		rule := &config.Rule{Domain: "d", Label: "job"}
		is := func(metrics int, want float64) {
			t.Helper()
			n, err := testutil.GatherAndCount(r.Prometheus, "sash_longest_wait_seconds")
			if got := r.Snapshot().Rules[0].LongestWait; got != want || n != metrics || err != nil {
				t.Errorf("%v s in %d metrics, want %v in %d (%v)", got, n, want, metrics, err)
			}
		}
		book := func(delay time.Duration) {
			r.Observe(t.Context(), &decide.Observation{
				Domain: "d", Allowed: true, Parts: make([]decide.Part, 1),
				Answers: []decide.Answer{{Rule: rule, Metric: "d.job", Cost: 1, Delay: delay}},
			})
		}
		book(0)
		is(0, 0)
		book(2 * time.Hour)
		book(time.Hour)
		is(1, 7200)
		time.Sleep(90 * time.Minute)
		is(1, 1800)
		time.Sleep(time.Hour)
		is(1, 0)
	})
}
