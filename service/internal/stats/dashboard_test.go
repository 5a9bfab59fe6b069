package stats

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/memstore"
)

func TestCandidatesAreCountedBesideTheirRules(t *testing.T) {
	decider, r := counting(t, `
domain: d
descriptors:
- {key: user, limits: [8/1h], candidate: {limits: [3/1h]}}
- {key: other, limits: [8/1h]}
`, memstore.New(nil))
	w := &world{t, r, decider}
	for range 5 {
		w.ask("d", "user", "ann", 1)
	}
	w.ask("d", "other", "ann", 1)
	for _, s := range r.Snapshot().Rules {
		switch {
		case s.Rule == "d.other" && s.Candidate != nil:
			t.Errorf("a rule without a candidate: %+v", s.Candidate)
		case s.Rule == "d.user" && (s.Candidate == nil || *s.Candidate != Tried{5, 2} || s.Count.Allowed != 5):
			t.Errorf("%+v, %+v", s, s.Candidate)
		}
	}
}

func TestRefusedCallsOfASubjectAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hot()
		began := time.Now()
		for i := range mostRefusals + 10 {
			r.Observe(t.Context(), observed("eve", int64(i+1), true))
			r.Observe(t.Context(), observed("ann", 1, false))
			time.Sleep(10 * time.Second) // over several epochs
		}
		all := r.Refusals("eve")
		if len(all) > mostRefusals || len(all) < 30 { // of the last one to two epochs of five minutes
			t.Fatalf("%d refusals", len(all))
		}
		for i, refused := range all {
			n := mostRefusals + 10 - len(all) + i
			if want := began.Add(time.Duration(n) * 10 * time.Second); refused.Units != int64(n+1) || !refused.At.Equal(want) {
				t.Fatalf("refusal %d is %+v, want %d units at %v", i, refused, n+1, want)
			}
		}
		if n := len(r.Refusals("ann")) + len(New(nil).Refusals("eve")); n > 0 {
			t.Errorf("%d refusals of nobody", n)
		}
	})
}
