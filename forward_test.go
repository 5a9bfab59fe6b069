package sash_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

// A fleet that reserves four times what it uses, of one subject or of a member's own too, gets what a fleet would that asks all
// the time, with about two decisions for each call. Where each process has a single caller, it still looks for what others gave back.
func TestUnitsThatComeBackBringWaitersForward(t *testing.T) {
	for _, c := range []struct {
		processes, callers int
		two                bool
		cost, least        int64
		most               float64 // decisions for each call
	}{
		{1, 48, false, 40, 900, 1.75}, {4, 48, false, 40, 900, 1.95}, {1, 48, true, 40, 900, 1.75}, {4, 48, true, 40, 900, 1.95},
		{1, 8, false, 400, 500, 2.1}, {8, 8, false, 400, 400, 2.1},
	} {
		processes, two := c.processes, c.two
		synctest.Test(t, func(t *testing.T) {
			store := newBookStore()
			store.takes = time.Millisecond
			limit := sash.Every(1000, 10*time.Second)
			ctx, stop := context.WithCancel(t.Context())
			var group sync.WaitGroup
			var calls atomic.Int64
			for range processes {
				l := newLimiter(t, store, nil, limit)
				for i := range c.callers / processes {
					subjects := []sash.Subject{{Key: fmt.Sprint("own", i), Cost: c.cost}}
					if !two {
						subjects = nil
					}
					group.Go(func() {
						for {
							r, err := l.Reserve(ctx, "k", c.cost, &sash.ReserveOptions{WaitUpTo: time.Hour, All: subjects})
							if err != nil || r.Wait(ctx) != nil {
								return
							}
							calls.Add(1)
							time.Sleep(50 * time.Millisecond)
							report(t, r.Settle(t.Context(), []int64{10, 10}[:len(r.Parts)]...))
						}
					})
				}
			}
			time.Sleep(100 * time.Second)
			stop()
			n, decisions := calls.Load(), store.decisions.Load()+store.questions.Load()
			group.Wait()
			each := float64(decisions) / float64(n)
			t.Logf("%d processes, two %v: %d of 1,000 calls, and %.2f decisions for each", processes, two, n, each)
			if n < c.least || each > c.most { // 230 without; at estimates of 400 no more than 610 are possible
				t.Errorf("%d processes: %d of 1,000 calls, and %.2f decisions for each", processes, n, each)
			}
		})
	}
}

// Nobody knows where a booking is when the answer is lost: its caller gets the error, and all others start as promised.
func TestAnAnswerThatIsLostCostsOneWaiter(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newBookStore()
			store.fails, store.panics = 1, panics
			l := newLimiter(t, store, nil, sash.Every(10, 10*time.Second))
			first := book(t, l, "k", 10)
			began := time.Now()
			var group sync.WaitGroup
			for i := range 3 {
				r := book(t, l, "k", 10)
				group.Go(func() {
					err := r.Wait(t.Context())
					if took := time.Since(began); errors.Is(err, sash.ErrUnavailable) != (i == 0) || took > r.Result().Delay {
						t.Errorf("waiter %d: %v after %v", i, err, took)
					}
				})
				synctest.Wait()
			}
			time.Sleep(time.Second)
			report(t, first.Settle(t.Context(), 1))
			group.Wait()
		})
	}
}

// A choice that is booked in a gap overtakes nobody who waits for the same subject: they take its place, and it takes the last.
func TestAChoiceOvertakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(2, 10*time.Second))
		var all []*sash.Reservation
		for range 6 {
			all = append(all, book(t, l, "k", 1))
		}
		var group sync.WaitGroup
		group.Go(func() {
			began := time.Now()
			if err := all[5].Wait(t.Context()); err != nil || time.Since(began) > 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
		synctest.Wait()
		check(t, all[2].Cancel(t.Context()))
		if _, r, err := reserveAny(t.Context(), l, time.Hour, sash.Subject{Key: "k", Cost: 1}); err != nil || r.StartsIn() != 20*time.Second {
			t.Errorf("the newcomer starts in %v, %v", r.StartsIn(), err)
		}
		group.Wait()
	})
}

// Who waits for one subject is brought forward although somebody waits for it and another one that has no room, and another booking
// of both takes no gap from the one who waits for it.
func TestWhoWaitsForTwoKeepsNobodyBack(t *testing.T) {
	both := []sash.Subject{{Key: "a", Cost: 1}, {Key: "b", Cost: 10}}
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(10, 2*time.Second))
		first, second := book(t, l, "b", 10), book(t, l, "b", 10)
		book(t, l, "a", 10)
		book(t, l, "a", 10)
		_, all, err := reserveAll(t.Context(), l, time.Minute, both...)
		check(t, err)
		var group sync.WaitGroup
		group.Go(func() { _ = all[0].Wait(t.Context()) })
		time.Sleep(50 * time.Millisecond)
		alone := book(t, l, "b", 1)
		time.AfterFunc(100*time.Millisecond, func() {
			report(t, errors.Join(second.Cancel(t.Context()), first.Cancel(t.Context())))
		})
		began := time.Now()
		if err := alone.Wait(t.Context()); err != nil || time.Since(began) > 300*time.Millisecond {
			t.Errorf("who waits for b starts after %v, %v", time.Since(began), err)
		}
		group.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(1, 4*time.Second))
		for range 4 {
			book(t, l, "a", 1)
		}
		book(t, l, "b", 1)
		leaves, stays := book(t, l, "b", 1), book(t, l, "b", 1)
		began := time.Now()
		time.AfterFunc(100*time.Millisecond, func() { _ = leaves.Settle(t.Context(), 0) })
		time.AfterFunc(3800*time.Millisecond, func() {
			both[1].Cost = 1
			report(t, third(reserveAll(t.Context(), l, time.Minute, both...)))
		})
		if err := stays.Wait(t.Context()); err != nil || time.Since(began) > 4100*time.Millisecond {
			t.Errorf("who waits for b starts after %v, %v", time.Since(began), err)
		}
	})
}

// Of a subject with 200 of 1,000 units left and one with 98 of 100, a call that costs 400 and 1 waits for the first.
func TestWhoWaitsForTwoAsksForTheOneThatIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(1000, 10*time.Second))
		requests := sash.Subject{Key: "requests", Cost: 1, Limits: []sash.Limit{sash.Every(100, 10*time.Second)}}
		var all [3]*sash.Reservation
		for i := range all {
			all[i] = must(l.Reserve(t.Context(), "tokens", 400, &sash.ReserveOptions{WaitUpTo: time.Minute, All: []sash.Subject{requests}}))(t)
		}
		time.AfterFunc(time.Second, func() { _ = all[0].Parts[0].Settle(t.Context(), 10) })
		begin := time.Now()
		if err := all[2].Wait(t.Context()); err != nil || time.Since(begin) > 2*time.Second {
			t.Errorf("the third call waits for %v, %v", time.Since(begin), err)
		}
	})
}

// Units come back while the store is asked for those that came before, or for a booking: two of those who wait start, as two units
// came back, and the answers that are older than what came back keep nobody.
func TestUnitsThatComeBackWhileTheStoreIsAsked(t *testing.T) {
	for offset := range 50 {
		for _, books := range []time.Duration{time.Hour, 0, 50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				store := newBookStore()
				store.takes = 100 * time.Millisecond
				l := newLimiter(t, store, nil, sash.Every(2, time.Hour))
				first, second := book(t, l, "k", 1), book(t, l, "k", 1)
				var started atomic.Int64
				for range 2 {
					go func() {
						report(t, l.Wait(t.Context(), "k"))
						started.Add(1)
					}()
					time.Sleep(time.Second)
				}
				time.AfterFunc(books, func() { book(t, l, "k", 1) })
				time.AfterFunc(time.Duration(offset)*10*time.Millisecond+1, func() { report(t, second.Cancel(t.Context())) })
				report(t, first.Cancel(t.Context()))
				if time.Sleep(2 * time.Second); started.Load() != 2 {
					t.Errorf("%d of two started: the second unit came %d ms after the first, and a booking after %v", started.Load(), 10*offset, books)
				}
				time.Sleep(3 * time.Hour)
			})
		}
	}
}

// Units come back in pieces, none of which is enough for the first caller: it starts with the last of them. The store is asked once
// or twice, and once more for a smaller call behind it, which could only start later than booked or delay the first.
func TestUnitsThatComeBackInPieces(t *testing.T) {
	for _, pieces := range [][]int64{{100}, {95, 5}, {90, 1, 1, 1, 1, 1, 5}, {50, 30, 20}, {15, 80, 5}} {
		for _, small := range []int{0, 1} {
			synctest.Test(t, func(t *testing.T) {
				store := newBookStore()
				l := newLimiter(t, store, nil, sash.Every(100, time.Hour))
				var charged []*sash.Reservation
				for _, units := range pieces {
					charged = append(charged, book(t, l, "k", units))
				}
				w := newWaiters(l)
				w.call(t.Context(), 0, 100)
				for range small {
					w.call(t.Context(), 1, 10)
				}
				for _, r := range charged {
					time.Sleep(100 * time.Millisecond)
					report(t, r.Cancel(t.Context()))
				}
				synctest.Wait()
				w.mu.Lock()
				if n := store.questions.Load(); len(w.order) != 1 || w.order[0] != 0 || n > int64(2+small) {
					t.Errorf("%v, and %d behind: %v start after %d questions", pieces, small, w.order, n)
				}
				w.mu.Unlock()
				w.group.Wait()
			})
		}
	}
}

// When the store fails while the first asks to start now, only its caller fails, though the store had room of which nobody knew here
// or the first place is far away: the rest wait as booked.
func TestAShortFailureCostsOneWaiter(t *testing.T) {
	for _, far := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			inner, broken, failed := memstore.New(nil), atomic.Bool{}, atomic.Int64{}
			store := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
				if broken.Load() {
					return errLost
				}
				return inner.Do(ctx, b)
			})
			other, mine := newLimiter(t, store, nil, sash.Every(10, 10*time.Second)), newLimiter(t, store, nil, sash.Every(10, 10*time.Second))
			var theirs []*sash.Reservation
			for range 30 {
				theirs = append(theirs, book(t, other, "k", 1))
			}
			for range 20 {
				go func() {
					if mine.Wait(t.Context(), "k") != nil {
						failed.Add(1)
					}
				}()
				synctest.Wait()
			}
			if far {
				time.Sleep(3 * time.Second)
			} else {
				_, err := mine.Reward(t.Context(), "k", 1)
				report(t, err)
				time.Sleep(100 * time.Millisecond)
				for _, r := range theirs[1:4] {
					report(t, r.Release(t.Context()))
				}
				time.Sleep(2 * time.Second)
			}
			broken.Store(true)
			time.Sleep(4 * time.Second)
			broken.Store(false)
			if time.Sleep(time.Minute); failed.Load() != 1 {
				t.Errorf("far %v: %d fail", far, failed.Load())
			}
		})
	}
}

// A booking that another than the store made stays where it is, and those behind it come forward once it has started.
func TestABookingThatIsNotOfTheStoreKeepsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, local := memstore.New(nil), atomic.Bool{}
		store := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
			defer func() {
				if local.Load() {
					b.Ops[0].Answer.Source = driver.FromLocal
				}
			}()
			return inner.Do(ctx, b)
		})
		l := newLimiter(t, store, nil, sash.Every(1, 10*time.Second))
		first := book(t, l, "k", 1)
		local.Store(true)
		second := book(t, l, "k", 1)
		local.Store(false)
		third := book(t, l, "k", 1)
		began := time.Now()
		time.AfterFunc(time.Second, func() { report(t, first.Cancel(t.Context())) })
		time.AfterFunc(11*time.Second, func() { report(t, second.Cancel(t.Context())) })
		go func() { report(t, second.Wait(t.Context())) }()
		if err := third.Wait(t.Context()); err != nil || time.Since(began) > 12*time.Second {
			t.Errorf("who waits behind it starts after %v, %v", time.Since(began), err)
		}
	})
}

// A unit comes back while five wait for one each in 100 s. The first starts, and each of the others as soon as the one before it has
// left the window, also beside limits that have room.
func TestThoseBehindACallerWhoCameForwardMoveUp(t *testing.T) {
	slow := sash.Every(1, 100*time.Second)
	for _, limits := range [][]sash.Limit{{slow}, {slow, sash.PerHour(60)}, {sash.PerSecond(5), slow}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newBookStore(), nil, limits...)
			first, began := book(t, l, "k", 1), time.Now()
			var group sync.WaitGroup
			for i := range 5 {
				group.Go(func() {
					err := l.Wait(t.Context(), "k")
					if at, want := time.Since(began), time.Duration(10+100*i)*time.Second; err != nil || at != want {
						t.Errorf("%v: caller %d starts after %v, want %v: %v", limits, i, at, want, err)
					}
				})
				synctest.Wait()
			}
			time.Sleep(10 * time.Second)
			report(t, first.Cancel(t.Context()))
			time.Sleep(10 * time.Second)
			book(t, l, "k", 1) // a newcomer goes behind them
			group.Wait()
		})
	}
}

// A settlement has a second, also of a booking that the store is being asked to bring forward, and can be repeated. Release, which tries
// once, has a second after that.
func TestABookingIsSettledWhileItIsBroughtForward(t *testing.T) {
	for _, release := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner, hangs := memstore.New(nil), atomic.Bool{}
			l := newLimiter(t, drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
				if kind := b.Ops[0].Kind; hangs.Load() && (kind == driver.Extend || kind == driver.Settle) {
					<-ctx.Done()
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return inner.Do(ctx, b)
			}), nil, sash.PerMinute(1))
			book(t, l, "k", 1)
			waits := book(t, l, "k", 1)
			var group sync.WaitGroup
			group.Go(func() { _ = waits.Wait(t.Context()) })
			synctest.Wait()
			hangs.Store(true)
			must(l.Reward(t.Context(), "k", 1))(t)
			synctest.Wait() // the store is asked
			began := time.Now()
			if release {
				time.AfterFunc(time.Second/2, func() { hangs.Store(false) })
				report(t, waits.Release(t.Context()))
			} else if err := waits.Settle(t.Context(), 0); !errors.Is(err, sash.ErrUnavailable) || time.Since(began) != time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			hangs.Store(false)
			if err := waits.Settle(t.Context(), 0); err != nil || remaining(t, l, "k") != 1 {
				t.Errorf("settling again: %v, and %d left", err, remaining(t, l, "k"))
			}
			group.Wait()
		})
	}
}

// The store is not asked for a caller whose place is about to begin, so it starts in time, whenever the queue began to ask.
func TestAPlaceThatIsAboutToBeginIsNotBroughtForward(t *testing.T) {
	for ms := range 600 {
		synctest.Test(t, func(t *testing.T) {
			store := newBookStore()
			l := newLimiter(t, store, nil, sash.Every(3, 10*time.Second))
			report(t, book(t, l, "another", 1).Cancel(t.Context())) // others may give back some, too
			for _, later := range []time.Duration{0, 5 * time.Millisecond, time.Millisecond} {
				time.Sleep(later)
				book(t, l, "k", 1)
			}
			store.takes = 7 * time.Millisecond
			time.Sleep(8*time.Second + time.Duration(2*ms)*time.Millisecond)
			var group sync.WaitGroup
			for range 3 {
				r := book(t, l, "k", 1)
				due := time.Now().Add(r.StartsIn())
				group.Go(func() {
					if err := r.Wait(t.Context()); err != nil || time.Now().After(due) {
						t.Errorf("%d ms: %v, %v late", 2*ms, err, time.Since(due))
					}
				})
			}
			group.Wait()
		})
	}
}
