package stats

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/decide"
)

func TestCandidatesAreCountedBesideTheirRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decider, r := counting(t, `
domain: d
descriptors:
- {key: user, limits: [8/1h], candidate: {limits: [3/1h]}}
- {key: other, limits: [8/1h]}
`, memstore.New(nil))
		w := &world{t, r, decider}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = r.Run(ctx) }()
		synctest.Wait()
		for range 5 {
			w.ask("d", "user", "ann", 1)
		}
		w.ask("d", "other", "ann", 1)
		time.Sleep(Step)
		synctest.Wait()
		for _, s := range r.Now().Rules {
			switch {
			case s.Rule == "d.other" && s.Candidate != nil:
				t.Errorf("a rule without a candidate: %+v", s.Candidate)
			case s.Rule == "d.user":
				if c := s.Candidate; c == nil || c.Requests != 5 || c.Refused != 2 || c.Rate.Requests != s.Rate.Allowed || c.Rate.Refused != 2 || s.Count.Allowed != 5 {
					t.Errorf("%+v, %+v", s, c)
				}
			}
		}
		time.Sleep(meanOver)
		synctest.Wait()
		for _, s := range r.Now().Rules {
			if c := s.Candidate; c != nil && (c.Refused != 2 || c.Rate.Refused != 0) {
				t.Errorf("after ten quiet seconds: %+v", c)
			}
		}
		stop()
	})
}

func TestTheLatencyOfTheStoreIsThatOfTheLastTenSeconds(t *testing.T) {
	r := New(nil)
	var l latencies
	if got := l.add(r.took[sash.FromStore]); got.P50 != nil || got.P99 != nil {
		t.Errorf("without a decision: %+v", got)
	}
	for i := range 100 { // 97 within 0.25 ms, 3 within 5 ms
		took := 200 * time.Microsecond
		if i%33 == 32 {
			took = 4 * time.Millisecond
		}
		r.Observe(t.Context(), &decide.Observation{Took: took, Answers: []decide.Answer{{Key: "k", Source: sash.FromStore, Limits: []sash.LimitResult{{}}}}, Parts: []decide.Part{{}}, Allowed: true})
	}
	if got := l.add(r.took[sash.FromStore]); got.P50 == nil || *got.P50 != .00025 || got.P99 == nil || *got.P99 != .005 {
		t.Errorf("%v", got)
	}
	r.took[sash.FromStore].Observe(3) // seconds, beyond the bounds
	for range len(l.at) - 2 {
		l.add(r.took[sash.FromStore])
	}
	if got := l.add(r.took[sash.FromStore]); got.P50 != nil || got.P99 != nil {
		t.Errorf("a decision of three seconds is within %v", got)
	}
	if got := l.add(r.took[sash.FromStore]); got.P50 != nil {
		t.Errorf("after ten quiet seconds: %v", *got.P50)
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
