package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// pick returns the part that was chosen, whether it was refused, and what is left of it: "1 ok:4".
func pick(t *testing.T, d *Decider, parts ...Part) string {
	t.Helper()
	answers, err := d.Decide(t.Context(), Request{Domain: "d", Parts: parts, Any: true})
	if err != nil {
		return err.Error()
	}
	word := "ok"
	if answers[0].Refused {
		word = "OVER"
	}
	if len(answers) != 1 {
		t.Errorf("%d answers", len(answers))
	}
	left, _ := answers[0].Tightest()
	return fmt.Sprintf("%d %s:%d", answers[0].Chosen, word, left.Remaining)
}

// oneOfAny holds on every store, under several algorithms and limits.
func oneOfAny(t *testing.T, d *Decider) {
	t.Helper()
	want(t, "most room, of one kind", pick(t, d, part("b", 1), part("a", 1)), "1 ok:4")
	want(t, "by the share that is left", pick(t, d, part("b", 1), part("a", 3)), "0 ok:1")
	want(t, "several kinds", pick(t, d, part("b", 1), part("c", 1), part("a", 3)), "1 ok:8")
	want(t, "none of the others is charged", ask(t, d, part("a", 0), part("b", 0), part("c", 0)), "ok:4 | ok:1 | ok:8")
	want(t, "what can never fit is passed over", pick(t, d, part("b", 3), part("never", 1), part("a", 4)), "2 ok:0")
	for range 9 {
		want(t, "the same subject twice", pick(t, d, part("a", 1), part("b", 1), part("a", 2)), "parts[2]: "+ErrTwice.Error())
		want(t, "nothing limits it, beside what counts refusals", pick(t, d, part("tokens", 1), part("nothing", 9)), "1 ok:0")
	}
	want(t, "neither was charged", pick(t, d, part("a", 1), part("b", 1)), "1 ok:0")
	if got := pick(t, d, part("a", 1), part("b", 1)); got != "0 OVER:0" && got != "1 OVER:0" {
		t.Errorf("without room: %s", got)
	}
	want(t, "a shadow is like others", pick(t, d, part("c", 1), part("shadow", 1)), "0 ok:7")
	want(t, "with room", pick(t, d, part("shadow", 1), part("a", 1)), "0 ok:0")
	want(t, "without room", pick(t, d, part("shadow", 1), part("a", 1)), "0 OVER:0")
	want(t, "a shadow that can never have room", pick(t, d, part("shadow", 9), part("a", 1)), "0 OVER:0")
	want(t, "by itself", pick(t, d, part("shadow", 9)), "0 OVER:0")
	want(t, "nothing limits it", pick(t, d, part("c", 1), part("nothing", 9)), "1 ok:0")
	want(t, "a limit of nothing", pick(t, d, part("never", 1)), "0 OVER:0")
	if _, err := d.Decide(t.Context(), Request{Domain: "d", Any: true, Parts: []Part{part("a", 6), part("b", 3)}}); !errors.Is(err, sash.ErrCostAboveLimit) {
		t.Error(err)
	}
	if _, err := d.Decide(t.Context(), Request{Domain: "d", Any: true, Parts: []Part{part("a", 1), part("tokens", 1)}}); !errors.Is(err, ErrCountsRefused) {
		t.Error(err)
	}
}

func TestOneOfAnyIsCharged(t *testing.T) {
	oneOfAny(t, live(t, hours))
}

// Without room, the answer is the part that has room first. A banned part is the answer only beside parts that can never be charged.
func TestTheAnswerOfNoneIsTheSoonest(t *testing.T) {
	d, c := decider(t, several+"- {key: banned}\n")
	ask(t, d, part("b", 2))
	c.move(10 * time.Second)
	ask(t, d, part("a", 5))
	for range 9 {
		want(t, "the soonest", pick(t, d, part("a", 1), part("b", 1)), "1 OVER:0")
	}
	d.Except([]Exception{exception("big=x", time.Hour)})
	want(t, "not the banned one", pick(t, d, part("big=x", 1), part("b", 1)), "1 OVER:0")
	answers := must(d.Decide(t.Context(), Request{Domain: "d", Any: true, Parts: []Part{part("b", 3), part("big=x", 1)}}))(t)
	if a := answers[0]; a.BannedBy == nil && a.Allowed() {
		t.Errorf("%+v", a)
	}
}

// However many calls come at once, a pool admits as many as all its subjects together, and observers see one part each.
func TestAPoolIsChargedToItsEnd(t *testing.T) {
	d := deciderOn(t, several, memstore.New(nil))
	seen, mu := make(map[string]int), sync.Mutex{}
	d.Observe(func(_ context.Context, o *Observation) {
		mu.Lock()
		defer mu.Unlock()
		if len(o.Parts) != 1 || len(o.Answers) != 1 || o.Answers[0].Key == "" {
			t.Errorf("%+v", o)
		}
		if o.Allowed {
			seen[o.Parts[0].Entries[0].Value]++
		}
	})
	var pool []Part
	for i := range 10 {
		pool = append(pool, part(fmt.Sprint("a=", i), 1))
	}
	var group sync.WaitGroup
	for range 60 {
		group.Go(func() { _, _ = d.Decide(t.Context(), Request{Domain: "d", Any: true, Parts: slices.Clone(pool)}) })
	}
	group.Wait()
	for i := range 10 {
		if n := seen[fmt.Sprint(i)]; n != 5 {
			t.Errorf("subject %d was charged %d times, want 5", i, n)
		}
	}
}

// A request has no more parts than a step of the store, or than a choice. It has one part if it waits or can be repeated.
func TestThePartsOfARequestAreBounded(t *testing.T) {
	d, _ := decider(t, several)
	parts := slices.Repeat([]Part{part("a", 1)}, MaxAny+1)
	for name, req := range map[string]Request{
		"all": {Parts: parts[:sash.MaxSubjects+1]}, "any": {Parts: parts, Any: true}, "none of any": {Any: true},
		"an ID": {Parts: parts[:2], ID: "x"}, "waits": {Parts: parts[:1], Any: true, Within: time.Second},
	} {
		req.Domain = "d"
		if _, err := d.Decide(t.Context(), req); !errors.Is(err, ErrParts) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A reservation counts for a whole window from its extension on, unless it is gone.
func TestExtendedReservationsCountAnew(t *testing.T) {
	d, c := decider(t, several)
	_, held, err := d.ReserveAll(t.Context(), Request{Domain: "d", Parts: []Part{part("a", 2), part("b", 2)}})
	check(t, err)
	old := slices.Clone(held)
	for range 3 {
		c.move(59 * time.Second)
		if there, err := d.Extend(t.Context(), held); !there || err != nil {
			t.Fatal(there, err)
		}
		want(t, "extended", ask(t, d, part("a", 0), part("b", 0)), "ok:3 | ok:0")
	}
	if there, err := d.Extend(t.Context(), old); there || err != nil {
		t.Error("charges that were moved are extended", there, err)
	}
	settle(t, d, &held[0], 0)
	if there, err := d.Extend(t.Context(), held); there || err != nil {
		t.Error("one of two is gone", there, err)
	}
	c.move(time.Minute)
	want(t, "the other was not moved", ask(t, d, part("b", 0)), "ok:2")
	held[0].Source = sash.FromLocal
	if _, err := d.Extend(t.Context(), held); !errors.Is(err, ErrKept) {
		t.Error(err)
	}
}

// Whoever leaves before the store has decided is charged for nothing.
func TestWhoLeavesADecisionOverPartsIsNotCharged(t *testing.T) {
	for name, req := range map[string]Request{
		"all": {Parts: []Part{part("a", 2), part("b", 2)}}, "several kinds": {Parts: []Part{part("a", 2), part("c", 2)}},
		"any of one": {Any: true, Parts: []Part{part("a", 2)}}, "any": {Any: true, Parts: []Part{part("a", 2), part("b", 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				inner := memstore.New(nil)
				d := deciderOn(t, hours, stands{driver.Passthrough{Store: inner}, func(ctx context.Context, b *driver.Batch) error {
					if b.Ops[0].MayCharge() > 0 {
						leave()
						time.Sleep(time.Millisecond)
						if ctx.Err() != nil {
							t.Error("the decision ended with its caller")
						}
					}
					return inner.Do(ctx, b)
				}})
				req.Domain = "d"
				if _, _, err := d.ReserveAll(ctx, req); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				time.Sleep(time.Second)
				want(t, "what is left", ask(t, d, part("a", 0), part("b", 0), part("c", 0)), "ok:5 | ok:2 | ok:9")
			})
		})
	}
}

// stands is a store in which do answers for another one.
type stands struct {
	driver.Passthrough
	do func(context.Context, *driver.Batch) error
}

func (s stands) Do(ctx context.Context, b *driver.Batch) error { return s.do(ctx, b) }
