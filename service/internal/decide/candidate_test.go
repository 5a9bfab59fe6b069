package decide

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// withCandidate is a configuration whose user rule has a candidate, if any.
func withCandidate(limits, candidate string) string {
	text := "domain: d\ndescriptors:\n- key: user\n  limits: [" + limits + "]\n"
	if candidate != "" {
		text += "  candidate: " + candidate + "\n"
	}
	return text + "- key: plan\n  limits: [3/1s]\n"
}

type twin struct {
	*Decider
	clock *clock
	last  []Answer
}

func newTwin(t *testing.T, text string) *twin {
	t.Helper()
	d, c := decider(t, text)
	w := &twin{Decider: d, clock: c}
	d.Observe(func(_ context.Context, o *Observation) { w.last = append([]Answer(nil), o.Answers...) })
	return w
}

// A candidate that is not enforced changes no answer, and is answered as if its limits were the rule's: the answers to
// the same random requests of a service with the limits, and of one with the candidate in their place.
func TestAWatchedCandidateIsDecidedAsIfAlone(t *testing.T) {
	for _, limits := range [][2]string{{"8/2s, 30/20s", "5/2s, 20/20s"}, {"5/2s", "9/3s"}} {
		both := newTwin(t, withCandidate(limits[0], "{limits: ["+limits[1]+"]}"))
		rule, alone := newTwin(t, withCandidate(limits[0], "")), newTwin(t, withCandidate(limits[1], ""))
		random := rand.New(rand.NewPCG(3, 5))
		differs := 0
		for n := range 2000 {
			step := time.Duration(random.Int64N(int64(300 * time.Millisecond))).Truncate(time.Microsecond)
			cost := 1 + random.Int64N(3)
			user := part(fmt.Sprint("user=", random.IntN(3)), 0).Entries
			for _, w := range []*twin{both, rule, alone} {
				w.clock.move(step)
				if n%2 == 0 {
					_ = must(one(t.Context(), w.Decider, One("d", user, &cost)))(t)
				} else if _, err := w.Decide(t.Context(), Request{Domain: "d", Parts: []Part{{Entries: user, Cost: cost}}, Lenient: true}); err != nil {
					t.Fatal(err)
				}
			}
			got, want, would := both.last[0], rule.last[0], alone.last[0]
			if fmt.Sprint(got.Refused, got.Limits) != fmt.Sprint(want.Refused, want.Limits) {
				t.Fatalf("request %d: the rule answers %v %v, and without a candidate %v %v", n, got.Refused, got.Limits, want.Refused, want.Limits)
			}
			c := got.Candidate
			if c == nil || c.Enforced || c.Metric != "d.user.candidate" || c.Cost != cost || c.Rule != got.Rule {
				t.Fatalf("request %d: the candidate is %+v", n, c)
			}
			if c.Refused != would.Refused || c.RefusedBy.RetryAfter != would.RefusedBy.RetryAfter || c.Limits[0].Remaining != would.Limits[0].Remaining {
				t.Fatalf("request %d: the candidate answers %v %v, and alone %v %v", n, c.Refused, c.Limits, would.Refused, would.Limits)
			}
			if c.Refused != got.Refused {
				differs++
			}
		}
		if differs < 50 {
			t.Errorf("%v: the two differed %d times of 2000", limits, differs)
		}
	}
}

// What another part refuses is charged to no candidate; what only the rule refuses is.
func TestACandidateIsChargedAsTheRuleWouldBe(t *testing.T) {
	w := newTwin(t, withCandidate("1/1h", "{limits: [5/1h]}\n  refund_within: 1m"))
	user, plan := part("user=ann", 1), part("plan=free", 3)
	ask(t, w.Decider, user, plan)
	left := func() int64 { return w.last[0].Candidate.Limits[0].Remaining }
	if left() != 4 {
		t.Fatalf("%d left after one", left())
	}
	if ask(t, w.Decider, user, plan); left() != 4 { // both refuse
		t.Errorf("%d left after a request that the plan refused too", left())
	}
	w.clock.move(time.Second)
	if ask(t, w.Decider, user, plan); left() != 3 { // only the rule does
		t.Errorf("%d left after a request that only the rule refused", left())
	}
	if ask(t, w.Decider, part("user=ann", 0)); left() != 3 {
		t.Errorf("%d left after a look", left())
	}
	back := part("user=ann", 1)
	back.Refund = true
	if ask(t, w.Decider, back); left() != 4 {
		t.Errorf("%d left after one was given back", left())
	}
	if ask(t, w.Decider, part("user=bob", 1)); left() != 4 {
		t.Errorf("%d left of another subject", left())
	}
	// What can never fit is refused by the candidate, and by nothing else.
	loose := newTwin(t, withCandidate("10/1h", "{limits: [5/1h]}"))
	if got := ask(t, loose.Decider, part("user=ann", 7)); got != "ok:3" || !loose.last[0].Candidate.Refused {
		t.Errorf("seven units: %s, and the candidate %+v", got, loose.last[0].Candidate)
	}
}

// While the store does not decide, the answer of a candidate is unknown, and no request waits for it or is refused by it.
func TestNoCandidateWithoutAStore(t *testing.T) {
	cfg := parse(t, "domain: d\ndescriptors:\n- key: user\n  limits: [10/1h]\n  on_unavailable: open\n  candidate: {limits: [1/1h]}\n")
	down := &broken{Store: memstore.New(nil)}
	d := newDecider(t, cfg, substituted(t, down))
	observed := 0
	d.Observe(func(_ context.Context, o *Observation) {
		if observed++; o.Answers[0].Candidate != nil {
			t.Errorf("the candidate answers %+v", o.Answers[0].Candidate)
		}
	})
	user := part("user=ann", 1)
	for range 5 {
		if v, err := one(t.Context(), d, One("d", user.Entries, nil)); err != nil || !v.Allowed() {
			t.Fatalf("%+v, %v", v, err)
		}
		if observed == 1 && down.asked != 1 {
			t.Errorf("the store failed, and was asked %d times", down.asked)
		}
		_ = must(d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{user}, Lenient: true}))(t)
	}
	// One that fails only for the candidate is no error either.
	failing := &broken{Store: memstore.New(nil), prefix: config.CandidateKey("")}
	d = newDecider(t, cfg, failing)
	if v, err := one(t.Context(), d, One("d", user.Entries, nil)); err != nil || !v.Allowed() || failing.asked != 1 {
		t.Errorf("%+v, %v; the candidate was asked %d times", v, err, failing.asked)
	}
	if observed != 10 {
		t.Errorf("%d requests were observed", observed)
	}
}

// A candidate neither limits nor watches a subject with a ban or an override. A reset also forgets what was watched.
func TestAnExceptionComesBeforeACandidate(t *testing.T) {
	for _, percent := range []string{"0", "100"} {
		w := newTwin(t, withCandidate("4/1h", "{limits: [2/1h], enforce_percent: "+percent+"}"))
		user := part("user=ann", 1)
		for range 2 {
			ask(t, w.Decider, user)
		}
		if c := w.last[0].Candidate; c == nil || c.Limits[0].Remaining != 0 || c.Enforced != (percent == "100") {
			t.Fatalf("%s%%: the candidate says %+v", percent, c)
		}
		until := time.Now().Add(time.Hour)
		w.Except([]Exception{{Domain: "d", Entries: user.Entries, Limits: []sash.Limit{sash.Every(9, time.Hour)}, Until: until}})
		if got := ask(t, w.Decider, user); got != "ok:6" || w.last[0].Candidate != nil {
			t.Errorf("%s%%: with other limits %s, and the candidate answers %+v", percent, got, w.last[0].Candidate)
		}
		w.Except([]Exception{{Domain: "d", Entries: user.Entries, Until: until}})
		if v, err := one(t.Context(), w.Decider, One("d", user.Entries, nil)); err != nil || v.Allowed() || w.last[0].Candidate != nil {
			t.Errorf("%s%%: banned: %+v, %v, and the candidate says %+v", percent, v, err, w.last[0].Candidate)
		}
		w.Except(nil)
		check(t, w.Reset(t.Context(), "d", user.Entries))
		if ask(t, w.Decider, user); w.last[0].Candidate.Limits[0].Remaining != 1 {
			t.Errorf("%s%%: after a reset the candidate has %d left", percent, w.last[0].Candidate.Limits[0].Remaining)
		}
	}
}
