package sash_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// No call is booked more than a day ahead. A caller with more time than that waits until it can be.
func TestATurnThatIsDaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(nil), nil, sash.Every(1, 20*time.Hour))
		start := time.Now()
		for range 2 {
			must(l.Reserve(t.Context(), "k", 1, &sash.ReserveOptions{WaitUpTo: sash.MaxAhead}))(t)
		}
		short, cancel := context.WithDeadline(t.Context(), start.Add(40*time.Hour))
		defer cancel()
		if err := l.Wait(short, "k"); !errors.Is(err, sash.ErrLimited) || time.Since(start) != 0 {
			t.Errorf("with a deadline of 40 h, %v after %v", err, time.Since(start))
		}
		long, cancel := context.WithDeadline(t.Context(), start.Add(72*time.Hour))
		defer cancel()
		if err := l.Wait(long, "k"); err != nil || time.Since(start).Round(time.Second) != 40*time.Hour {
			t.Errorf("with a deadline of 72 h, %v after %v", err, time.Since(start))
		}
	})
}

// Those who do not wait get nothing beside a queue that asks for all there is, and the rest beside one that asks for less.
func TestAShareIsLeftForThoseWhoDoNotWait(t *testing.T) {
	for share, want := range map[int64][2]int{100: {0, 0}, 95: {45, 55}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, memstore.New(nil), nil, sash.PerSecond(100))
			waiters := must(l.With(sash.PerSecond(share)))(t)
			ctx, stop := context.WithCancel(t.Context())
			var group sync.WaitGroup
			for range 200 {
				group.Go(func() {
					var err error
					for err == nil {
						err = waiters.Wait(ctx, "k")
					}
				})
			}
			synctest.Wait()
			now := 0
			for range 1000 {
				time.Sleep(10 * time.Millisecond)
				if res, err := l.Allow(t.Context(), "k"); err != nil {
					t.Error(err)
				} else if res.Allowed {
					now++
				}
			}
			stop()
			group.Wait()
			if now < want[0] || now > want[1] {
				t.Errorf("with %d of 100 for those who wait, others get %d in 10 s, want %d to %d", share, now, want[0], want[1])
			}
		})
	}
}

// While the store is down failover answers those who come to wait, by its mode. Those who have a place start at its time.
func TestWaitingWhileFailoverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(nil))
		guarded := must(failover.New(store, &failover.Options{
			Modes: failover.Modes{Rules: []failover.Rule{
				{MaxCost: 1, Mode: failover.Open}, {MaxCost: 2, Mode: failover.Local}, {MaxCost: 3, Mode: failover.Closed},
			}},
			Local: memstore.New(nil),
		}))(t)
		l := newLimiter(t, guarded, nil, sash.Every(4, time.Minute))
		began := time.Now()
		check(t, l.WaitN(t.Context(), "k", 4))
		booked := book(t, l, "k", 4)
		store.Fail(errors.New("down"))
		for range 3 {
			if err := l.Wait(t.Context(), "k"); err != nil || time.Since(began) != 0 {
				t.Errorf("open: after %v: %v", time.Since(began), err)
			}
		}
		if err := l.WaitN(t.Context(), "k", 3); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("closed: %v", err)
		}
		for i := range 3 {
			if err := l.WaitN(t.Context(), "other", 2); err != nil || time.Since(began) != time.Duration(i/2)*time.Minute {
				t.Errorf("local, call %d of two a minute: after %v: %v", i, time.Since(began), err)
			}
		}
		if err := booked.Wait(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("a place of before: after %v: %v", time.Since(began), err)
		}
		if err := guarded.Close(t.Context()); err != nil {
			t.Log(err)
		}
	})
}

// waiters calls WaitN for each cost, one after the other, and returns who was admitted when, in that order.
type waiters struct {
	l     *sash.Limiter
	group sync.WaitGroup
	mu    sync.Mutex
	order []int                 // guarded by mu
	after map[int]time.Duration // guarded by mu
	errs  map[int]error         // guarded by mu
}

func (w *waiters) call(ctx context.Context, i int, cost int64) {
	began := time.Now()
	w.group.Go(func() {
		err := w.l.WaitN(ctx, "k", cost)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil {
			w.errs[i] = err
			return
		}
		w.order, w.after[i] = append(w.order, i), time.Since(began)
	})
	synctest.Wait() // until it sleeps
}

func newWaiters(l *sash.Limiter) *waiters {
	return &waiters{l: l, after: map[int]time.Duration{}, errs: map[int]error{}}
}

// Waiters stand in order, whether they are booked or stand in line.
func eachOrder(t *testing.T, test func(t *testing.T, store driver.Store, opts *sash.Options, decisions func() int)) {
	booked := func() (driver.Store, func() int) {
		s := newBookStore()
		return s, func() int { return int(s.decisions.Load()) }
	}
	inLine := func() (driver.Store, func() int) {
		s := &settlingStore{Store: memstore.New(nil)}
		return s, func() int { return int(s.calls.Load()) }
	}
	for name, c := range map[string]struct {
		make func() (driver.Store, func() int)
		opts *sash.Options
	}{
		"booked":                     {booked, nil},
		"in line":                    {inLine, nil},
		"in line for a fixed window": {inLine, &sash.Options{Algorithm: sash.FixedWindow}},
		"in line for a counter":      {inLine, &sash.Options{Algorithm: sash.SlidingCounter}},
		"in line for a sorted set":   {inLine, &sash.Options{Algorithm: sash.SortedSetLog}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, decisions := c.make()
				test(t, store, c.opts, decisions)
			})
		})
	}
}

// Waiters are admitted in their order, by one decision each. One of cost 50 among thousands of cost 1 gets its turn in its turn.
func TestAHighCostIsNotOvertaken(t *testing.T) {
	for _, high := range []int64{1, 50} {
		eachOrder(t, func(t *testing.T, store driver.Store, opts *sash.Options, decisions func() int) {
			w := newWaiters(newLimiter(t, store, opts, sash.Every(50, time.Second)))
			const n, large = 3000, 700
			began := time.Now()
			for i := range n {
				cost := int64(1)
				if i == large {
					cost = high
				}
				w.call(t.Context(), i, cost)
			}
			w.group.Wait()
			took, least := time.Since(began), time.Duration((n+high-2)/50)*time.Second
			if took < least || took > least+time.Second && opts == nil {
				t.Errorf("%d at 50 per second took %v", n, took)
			}
			if len(w.order) != n {
				t.Fatalf("%d of %d are admitted: %v", len(w.order), n, w.errs)
			}
			for i := range n - 1 {
				if w.after[i] > w.after[i+1] {
					t.Errorf("waiter %d came after %d, and was admitted before", i+1, i)
				}
			}
			if d := decisions(); high == 1 && d > n+1 {
				t.Errorf("%d decisions for %d admissions", d, n)
			}
		})
	}
}

// A deadline that is nearer than the turn is known at once, and one who leaves takes nothing with it.
func TestWaitersWhoCannotWaitSoLong(t *testing.T) {
	eachOrder(t, func(t *testing.T, store driver.Store, opts *sash.Options, _ func() int) {
		w := newWaiters(newLimiter(t, store, opts, sash.Every(1, time.Minute)))
		for i := range 2 {
			w.call(t.Context(), i, 1)
		}
		near, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.call(near, 2, 1)
		w.mu.Lock()
		var limited *sash.LimitedError
		if err := w.errs[2]; !errors.As(err, &limited) || !errors.Is(err, context.DeadlineExceeded) || limited.Result.RetryAfter < time.Second {
			t.Errorf("a deadline after a second, and the turn after more than a minute: %v", err)
		}
		w.mu.Unlock()
		leaves, leave := context.WithCancel(t.Context())
		w.call(leaves, 3, 1)
		w.call(t.Context(), 4, 1)
		leave()
		synctest.Wait()
		w.mu.Lock()
		if err := w.errs[3]; !errors.Is(err, context.Canceled) || errors.Is(err, sash.ErrLimited) {
			t.Errorf("a caller who left: %v", err)
		}
		w.mu.Unlock()
		w.group.Wait()
		if !slices.Equal(w.order, []int{0, 1, 4}) {
			t.Errorf("admitted are %v", w.order)
		}
	})
}

// The first in line asks again when this process gives units back, and at no other time.
func TestWhoGivesBackWakesTheFirstInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &settlingStore{Store: memstore.New(nil)}
		l := newLimiter(t, store, nil, sash.PerHour(2))
		plan := must(l.With(sash.PerHour(3)))(t)
		a, b := reserve(t, l, "k", 1), reserve(t, plan, "k", 1)
		w := newWaiters(l)
		for i := range 4 {
			w.call(t.Context(), i, 1)
		}
		began, asked := time.Now(), store.calls.Load()
		time.Sleep(time.Minute)
		if n := store.calls.Load(); n != asked {
			t.Errorf("%d decisions while nothing changed", n-asked)
		}
		for i, giveBack := range []func(context.Context) error{
			a.Cancel, b.Cancel, func(ctx context.Context) error { return second(l.Reward(ctx, "k", 1)) },
		} {
			check(t, giveBack(t.Context()))
			synctest.Wait()
			if w.mu.Lock(); len(w.order) != i+1 || w.order[i] != i || w.after[i] != time.Since(began) {
				t.Errorf("after units came back %d times admitted are %v, after %v", i+1, w.order, w.after)
			}
			w.mu.Unlock()
			time.Sleep(time.Second)
		}
		check(t, l.Reset(t.Context(), "k"))
		w.group.Wait()
		if len(w.order) != 4 || time.Since(began) > 2*time.Minute {
			t.Errorf("after a reset admitted are %v, %v later", w.order, time.Since(began))
		}
	})
}

// A settlingStore cannot book, and counts decisions.
type settlingStore struct {
	driver.Store
	calls atomic.Int64
	fails atomic.Pointer[error]
	takes atomic.Int64 // an answer
}

func (s *settlingStore) Powers() driver.Powers {
	return driver.CanSettle | driver.CanForget | driver.CanTake
}

func (s *settlingStore) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind == driver.Charge {
		s.calls.Add(1)
		time.Sleep(time.Duration(s.takes.Load()))
		if err := s.fails.Load(); err != nil {
			return *err
		}
	}
	return s.Store.Do(ctx, b)
}

// One after the other, 100 callers would wait for 100 timeouts of the store, and one who comes meanwhile for two.
func TestALineBreaksUpWhenTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &settlingStore{Store: memstore.New(nil)}
		w := newWaiters(newLimiter(t, store, nil, sash.Every(1, time.Minute)))
		for i := range 101 {
			w.call(t.Context(), i, 1)
		}
		fails := errors.New("down")
		store.takes.Store(int64(3 * time.Second))
		store.fails.Store(&fails)
		began := time.Now()
		time.Sleep(time.Minute + 4*time.Second)
		w.call(t.Context(), 101, 1)
		w.group.Wait()
		if took := time.Since(began); took != time.Minute+7*time.Second {
			t.Errorf("the last got its error after %v; the first asked after a minute, and the others when that had failed", took)
		}
		for i := 1; i <= 101; i++ {
			if !errors.Is(w.errs[i], sash.ErrUnavailable) {
				t.Errorf("waiter %d: %v", i, w.errs[i])
			}
		}
	})
}

func TestALineThatBrokeUpStandsInItsOldOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &settlingStore{Store: memstore.New(nil)}
		w := newWaiters(newLimiter(t, store, nil, sash.Every(1, time.Minute)))
		for i := range 20 {
			w.call(t.Context(), i, 1)
		}
		lost := errors.New("connection reset")
		store.fails.Store(&lost)
		store.takes.Store(int64(time.Second))
		time.Sleep(time.Minute + time.Second/2)
		time.AfterFunc(time.Second, func() { store.fails.Store(nil) })
		w.group.Wait()
		if len(w.order) != 19 || w.errs[1] == nil {
			t.Fatalf("admitted are %v; errors %v", w.order, w.errs)
		}
		if rest := w.order[2:]; !slices.IsSorted(rest) { // of those who asked at once any one was admitted
			t.Errorf("admitted in the order %v", w.order)
		}
	})
}

// The second in line learns from the admission of the first that it has no room before its deadline.
func TestADeadlineIsComparedWithTheNextUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &settlingStore{Store: memstore.New(nil)}
		store.takes.Store(int64(100 * time.Millisecond))
		w := newWaiters(newLimiter(t, store, nil, sash.PerMinute(1)))
		w.call(t.Context(), 0, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.call(ctx, 1, 1)
		began := time.Now()
		w.group.Wait()
		if took := time.Since(began); took != 200*time.Millisecond || !errors.Is(w.errs[1], sash.ErrLimited) {
			t.Errorf("after %v: %v", took, w.errs[1])
		}
	})
}

// A place that its caller could not reach in time is not booked in the first place.
func TestAWaitThatEndsBeforeItsAnswerBooksNothing(t *testing.T) {
	for takes, deadlines := range map[time.Duration]map[time.Duration]error{ // after the charge that leaves after a minute
		0: {time.Minute: context.DeadlineExceeded, time.Minute + time.Microsecond: nil},
		100 * time.Millisecond: { // from a decision to its answer
			time.Minute + 50*time.Millisecond: context.DeadlineExceeded, time.Minute + 150*time.Millisecond: nil,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			booked, settled := newBookStore(), 0
			booked.takes = takes
			store := drivertest.Over(booked, func(ctx context.Context, b *driver.Batch) error {
				if b.Ops[0].Kind == driver.Settle {
					settled++
				}
				return booked.Do(ctx, b)
			})
			l := newLimiter(t, store, nil, sash.Every(1, time.Minute))
			for range 100 { // now it is known how long the store takes
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				must(l.Allow(ctx, "another"))(t)
				cancel()
			}
			for deadline, want := range deadlines {
				key, charged := deadline.String(), time.Now()
				if res, err := l.Allow(t.Context(), key); err != nil || !res.Allowed {
					t.Fatal(res, err)
				}
				ctx, cancel := context.WithDeadline(t.Context(), charged.Add(deadline))
				began := time.Now()
				err := l.Wait(ctx, key)
				if !errors.Is(err, want) || want != nil && (!errors.Is(err, sash.ErrLimited) || time.Since(began) > takes) {
					t.Errorf("a deadline %v after the charge: %v after %v", deadline, err, time.Since(began))
				}
				cancel()
			}
			if settled != 0 {
				t.Errorf("%d places were given back", settled)
			}
		})
	}
}

func TestWaitDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(1, time.Second))
		began := time.Now()
		for i := range 3 {
			err := l.WaitDo(t.Context(), "k", func(context.Context) error { return errLost })
			if took := time.Since(began); !errors.Is(err, errLost) || took != time.Duration(i)*time.Second {
				t.Errorf("call %d: %v after %v", i, err, took)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.WaitDo(gone, "k", nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
