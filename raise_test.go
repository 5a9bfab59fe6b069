package sash_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/internal/judge"
)

// Limits are raised from 10 to 20 a second while 200 callers of one process or four wait, behind whom 40 come under the new ones:
// all 240 are served as early as those allow, in the order of their process but for the store's time, and no window is over.
// So it is where the store does not book.
func TestRaisedLimitsBringWaitersForward(t *testing.T) {
	for _, c := range []struct {
		algorithm sash.Algorithm
		processes int
	}{{sash.SlidingLog, 1}, {sash.SlidingLog, 4}, {sash.SortedSetLog, 1}} {
		synctest.Test(t, func(t *testing.T) {
			store := newBookStore()
			store.takes = time.Millisecond
			var group sync.WaitGroup
			starts := make([][240]time.Time, c.processes)
			wait := func(l *sash.Limiter, at *time.Time) {
				group.Go(func() {
					report(t, l.Wait(t.Context(), "k"))
					*at = time.Now()
				})
				time.Sleep(2 * time.Millisecond)
			}
			began := time.Now()
			var low, high []*sash.Limiter
			for p := range c.processes {
				low = append(low, newLimiter(t, store, &sash.Options{Algorithm: c.algorithm}, sash.PerSecond(10)))
				with := must(low[p].With(sash.PerSecond(20)))(t)
				high = append(high, with)
			}
			for i := range 200 {
				wait(low[i%c.processes], &starts[i%c.processes][i])
			}
			time.Sleep(time.Second)
			for _, l := range low {
				report(t, l.Raise("k", sash.PerSecond(20)))
			}
			raised := time.Now()
			for i := range 40 {
				wait(high[i%c.processes], &starts[i%c.processes][200+i])
			}
			group.Wait()
			var calls []judge.Call
			before := 0
			for p := range starts {
				last := time.Time{}
				for i, at := range starts[p] {
					if at.IsZero() {
						continue
					}
					calls = append(calls, judge.Call{At: at, Cost: 1})
					if at.Before(raised) {
						before++
					}
					if last.Sub(at) > 4*time.Millisecond {
						t.Errorf("%v: caller %d of process %d starts %v before one who came earlier", c, i, p, last.Sub(at))
					}
					last = at
				}
			}
			took, least := time.Since(raised), time.Duration(240-before-20)*time.Second/20
			t.Logf("%v: %d calls in %v, and %d before in %v", c, 240-before, took, before, raised.Sub(began))
			if took > least+time.Second {
				t.Errorf("%v: %d calls take %v after the limits were raised", c, 240-before, took)
			}
			slices.SortFunc(calls, func(a, b judge.Call) int { return a.At.Compare(b.At) })
			report(t, judge.CheckHistory([]sash.Limit{sash.Every(20, time.Second-8*time.Millisecond)}, calls))
		})
	}
}

func TestLimitsThatAreNotRaised(t *testing.T) {
	l := newLimiter(t, newBookStore(), nil, sash.PerSecond(10), sash.PerMinute(100))
	for _, c := range []struct {
		key    string
		limits []sash.Limit
		want   error
	}{
		{"k", []sash.Limit{sash.PerSecond(20), sash.PerMinute(100)}, nil}, {"k", l.Limits(), nil},
		{"", l.Limits(), sash.ErrInvalidKey}, {"k", nil, sash.ErrInvalidLimit},
		{"k", []sash.Limit{sash.PerSecond(20)}, sash.ErrInvalidLimit},
		{"k", []sash.Limit{sash.PerSecond(20), sash.PerMinute(99)}, sash.ErrInvalidLimit},
		{"k", []sash.Limit{sash.PerSecond(20), sash.PerHour(100)}, sash.ErrInvalidLimit},
	} {
		if err := l.Raise(c.key, c.limits...); !errors.Is(err, c.want) {
			t.Errorf("%q, %v: %v, want %v", c.key, c.limits, err, c.want)
		}
	}
}

// Who waits under raised limits and who came under these are one line: a newcomer in a gap before both starts last.
func TestRaisedLimitsAreOneLineWithTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raised := []sash.Limit{sash.Every(1, 10*time.Second), sash.PerHour(200)}
		low := newLimiter(t, newBookStore(), nil, raised[0], sash.PerHour(100))
		high := must(low.With(raised...))(t)
		book(t, low, "k", 1)
		leaves := book(t, low, "k", 1)
		started := make(chan int, 3)
		wait := func(i int, l *sash.Limiter) {
			go func() {
				report(t, l.Wait(t.Context(), "k"))
				started <- i
			}()
			time.Sleep(10 * time.Millisecond)
		}
		wait(0, low)
		wait(1, high)
		report(t, low.Raise("k", raised...))
		time.Sleep(time.Second)
		report(t, leaves.Cancel(t.Context()))
		wait(2, high)
		if order := []int{<-started, <-started, <-started}; !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("they start in the order %v", order)
		}
	})
}
