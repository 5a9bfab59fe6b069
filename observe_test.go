package sash_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// A recorder is an observer that keeps what it sees. It is safe for concurrent use.
type recorder struct {
	mu   sync.Mutex
	seen []sash.Decision
}

func (r *recorder) Observe(_ context.Context, d sash.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, d)
}

// take returns what was seen since the last call, in words.
func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, d := range r.seen {
		s := fmt.Sprintf("%s %v %d ", d.Prefix, d.Limits, d.Cost)
		switch by, refused := d.Result.RefusedBy(); {
		case d.Err != nil:
			s += "error"
		case refused:
			s += "refused by " + by.Limit.Name
		default:
			s += "allowed"
		}
		if d.Waiting {
			s += " waiting"
		}
		all = append(all, s)
	}
	r.seen = nil
	return strings.Join(all, "; ")
}

// An observer sees one decision for each call that decides, and none for other calls.
func TestAnObserverSeesEachDecisionOnce(t *testing.T) {
	ctx, seen := t.Context(), new(recorder)
	store := memstore.New(nil)
	l := newLimiter(t, store, &sash.Options{Prefix: "api", Observer: seen}, sash.PerMinute(10))
	plan := must(l.With(sash.Limit{Units: 3, Window: time.Minute, Name: "free"}))(t)
	slots := must(sash.NewConcurrency(store, &sash.Options{Prefix: "api", Observer: seen}, 1, time.Minute))(t)
	both := []sash.Subject{{Key: "pair-a", Cost: 2}, {Key: "pair-b", Cost: 5, Limits: []sash.Limit{sash.PerHour(5)}}}
	for _, c := range []struct {
		name string
		call func() error
		want string
	}{
		{"Allow", func() error { _, err := l.Allow(ctx, "a"); return err }, "api [10/1m] 1 allowed"},
		{"AllowN", func() error { _, err := l.AllowN(ctx, "a", 10); return err }, "api [10/1m] 10 refused by 10/1m"},
		{"Do", func() error { return l.Do(ctx, "a", func(context.Context) error { return nil }) }, "api [10/1m] 1 allowed"},
		{"With", func() error { _, err := plan.AllowN(ctx, "a", 2); return err }, "api [3/1m] 2 refused by free"},
		{"AllowAll", func() error { _, err := l.AllowAll(ctx, both...); return err }, "api [10/1m 5/1h] 5 allowed"},
		{"AllowAll again", func() error { _, err := l.AllowAll(ctx, both...); return err }, "api [10/1m 5/1h] 5 refused by 5/1h"},
		{"AllowAll of one", func() error { _, err := l.AllowAll(ctx, both[:1]...); return err }, "api [10/1m] 2 allowed"},
		{"AllowAny", func() error { _, _, err := l.AllowAny(ctx, both[0], sash.Subject{Key: "c", Cost: 2}); return err }, "api [10/1m] 2 allowed"},
		{"AllowOnce", func() error { _, err := l.AllowOnce(ctx, "id", "a", 1); return err }, "api [10/1m] 1 allowed"},
		{"AllowUpTo", func() error { _, err := l.AllowUpTo(ctx, "d", 99); return err }, "api [10/1m] 10 allowed"},
		{"Reserve and Settle", func() error {
			r, err := l.Reserve(ctx, "e", 4, nil)
			if err != nil {
				return err
			}
			return r.Settle(ctx, 2)
		}, "api [10/1m] 4 allowed"},
		{"Book", func() error { _, err := l.Reserve(ctx, "a", 10, &sash.ReserveOptions{WaitUpTo: time.Hour}); return err }, "api [10/1m] 10 allowed"},
		{"Wait", func() error { return l.Wait(ctx, "f") }, "api [10/1m] 1 allowed waiting"},
		{"Concurrency.Start", func() error { _, err := slots.Start(ctx, "a"); return err }, "api:in-flight [1/1m] 1 allowed"},
		{"Peek", func() error { _, err := l.Peek(ctx, "a"); return err }, ""},
		{"Penalize", func() error { _, err := l.Penalize(ctx, "a", 1); return err }, ""},
		{"Reward", func() error { _, err := l.Reward(ctx, "a", 1); return err }, ""},
		{"Reset", func() error { return l.Reset(ctx, "a") }, ""},
	} {
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := seen.take(); got != c.want {
			t.Errorf("%s: the observer saw %q, want %q", c.name, got, c.want)
		}
	}
}

// No part of a Decision has the key, and a Result that the caller has keeps it.
func TestAnObserverSeesNoKey(t *testing.T) {
	seen := new(recorder)
	l := newLimiter(t, memstore.New(nil), &sash.Options{Prefix: "api", Observer: seen}, sash.PerMinute(1))
	subjects := []sash.Subject{{Key: "ann@example.com", Cost: 1}, {Key: "bob@example.com", Cost: 1}}
	var res sash.Result
	for range 2 { // the second is refused
		for n := range subjects {
			var err error
			if res, err = l.AllowAll(t.Context(), subjects[:n+1]...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if by, refused := res.RefusedBy(); !refused || by.Key != "api:ann@example.com" {
		t.Errorf("the caller's result was refused by %q", by.Key)
	}
	for i, d := range seen.seen {
		limits := d.Result.Limits()
		if len(limits) != len(d.Limits) {
			t.Errorf("decision %d has the results of %d limits, want %d", i, len(limits), len(d.Limits))
		}
		if text := fmt.Sprintf("%+v %+v", d, limits); strings.Contains(text, "example.com") {
			t.Errorf("decision %d has a key: %s", i, text)
		}
	}
	if len(seen.seen) != 4 {
		t.Errorf("%d decisions, want 4", len(seen.seen))
	}
}

func TestAnObserverSeesCallsWithoutADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, store := new(recorder), storetest.NewFaulty(memstore.New(nil))
		l := newLimiter(t, store, &sash.Options{Observer: seen}, sash.PerMinute(10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		store.Fail(errors.New("down"))
		_, _ = l.Allow(ctx, "a")
		store.Hang(nil)
		_, _ = l.AllowAll(ctx, sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1})
		if len(seen.seen) != 2 || !errors.Is(seen.seen[0].Err, sash.ErrUnavailable) || !errors.Is(seen.seen[1].Err, context.DeadlineExceeded) ||
			seen.seen[1].Duration != time.Second || len(seen.seen[1].Limits) != 2 {
			t.Errorf("seen: %+v", seen.seen)
		}
		// No store is asked about a call that is wrong, or whose caller has left.
		store.Fail(nil)
		seen.take()
		_, _ = l.Allow(t.Context(), "")
		_, _ = l.AllowN(t.Context(), "a", 11)
		_, _ = l.Allow(ctx, "a")
		if got := seen.take(); got != "" {
			t.Errorf("of calls that decide nothing the observer saw %q", got)
		}
	})
}

type observerFunc func(context.Context, sash.Decision)

func (f observerFunc) Observe(ctx context.Context, d sash.Decision) { f(ctx, d) }

// The decision stands whatever the observer does: a panic is dropped, and a slow one delays its caller alone.
func TestADecisionStandsWhateverItsObserverDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var observer observerFunc
		l := newLimiter(t, memstore.New(nil), &sash.Options{Observer: observerFunc(func(ctx context.Context, d sash.Decision) { observer(ctx, d) })},
			sash.PerMinute(10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		observer = func(context.Context, sash.Decision) { panic("a bug") }
		if res, err := l.Allow(ctx, "a"); err != nil || res.Remaining != 9 {
			t.Errorf("Allow beside a panic: %+v, %v", res, err)
		}
		if r, err := l.Reserve(ctx, "a", 1, nil); err != nil || !r.Allowed() || r.Result().Remaining != 8 {
			t.Errorf("Reserve beside a panic: %v", err)
		}
		observer = func(context.Context, sash.Decision) { time.Sleep(300 * time.Millisecond) }
		began := time.Now()
		if res, err := l.Allow(ctx, "a"); err != nil || !res.Allowed || time.Since(began) != 300*time.Millisecond {
			t.Errorf("beside a slow observer Allow took %v: %v", time.Since(began), err)
		}
		if _, err := l.Peek(ctx, "a"); err != nil || time.Since(began) != 300*time.Millisecond {
			t.Errorf("another call was delayed to %v: %v", time.Since(began), err)
		}
	})
}

// A store that panics decides nothing, and an observer sees nothing.
func TestAnObserverSeesNoDecisionOfAStoreThatPanics(t *testing.T) {
	seen := new(recorder)
	store := &scripted{answer: func(driver.Request) driver.Answer { panic("a bug") }}
	l := newLimiter(t, store, &sash.Options{Observer: seen}, sash.PerMinute(10))
	for _, call := range []func(){
		func() { _, _ = l.Allow(t.Context(), "a") },
		func() { _, _ = l.AllowOnce(t.Context(), "id", "a", 1) },
		func() {
			_, _ = l.AllowAll(t.Context(), sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1})
		},
	} {
		func() {
			defer func() { _ = recover() }()
			call()
		}()
	}
	if got := seen.take(); got != "" {
		t.Errorf("the observer saw %q", got)
	}
}
