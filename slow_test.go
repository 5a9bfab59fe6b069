package sash_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// slowBy returns a store in memory that decides, and answers as much later as takes says, as a store on a network does.
func slowBy(takes func() time.Duration) *drivertest.Fake {
	inner := memstore.New(nil)
	return drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
		err := inner.Do(ctx, b)
		if b.Ops[0].Kind == driver.Charge && b.Ops[0].ID == "" {
			select {
			case <-time.After(takes()):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return err
	})
}

func slowStore(takes time.Duration) *drivertest.Fake {
	return slowBy(func() time.Duration { return takes })
}

// The store has a second more than its caller; synctest fails if anything runs on after that.
func TestAStoreThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, slowStore(time.Hour), nil, sash.PerHour(3))
		ctx, stop := context.WithCancel(context.Background())
		time.AfterFunc(time.Minute, stop)
		began := time.Now()
		if _, err := l.Reserve(ctx, "k", 1, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the caller waited %v", took)
		}
		time.Sleep(time.Second)
	})
}

func TestWaitingForASlotEndsAsLimitedAlsoWhileTheStoreIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, slowStore(40*time.Millisecond), 1, time.Hour)
		start(t, c, "k")
		for ms := 41; ms < 200; ms++ {
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
			if _, err := c.Wait(ctx, "k"); !errors.Is(err, sash.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %d ms: %v", ms, err)
			}
			stop()
		}
		time.Sleep(time.Second) // for the store to end the last question
	})
}

func TestASlotIsReleasedOnceAndLeavesNothingToRemember(t *testing.T) {
	inner, settled, named, fails := memstore.New(nil), 0, 0, error(nil)
	c := newConcurrency(t, drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
		if b.Ops[0].Kind == driver.Settle {
			if settled++; b.Ops[0].ID != "" {
				named++
			}
			if fails != nil {
				return fails
			}
		}
		return inner.Do(ctx, b)
	}), 1, time.Hour)
	for range 5 {
		slot := start(t, c, "k")
		for range 3 {
			check(t, slot.Release(t.Context()))
		}
		check(t, c.Do(t.Context(), "k", func(context.Context) error { return nil }))
	}
	if settled != 10 || named != 0 {
		t.Errorf("%d settlements, %d of them with an ID to remember; want 10 and 0", settled, named)
	}
	fails = errLost
	slot := start(t, c, "k")
	if err := slot.Release(t.Context()); !errors.Is(err, sash.ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
	if err := slot.Release(t.Context()); err != nil || settled != 11 {
		t.Errorf("a release that may have been made was repeated: %d times, %v", settled, err)
	}
}

// Callers who give up and come again wait for what is still decided for those before, so the store does not get more and
// more to do, and everything is given back.
func TestCallersWhoGiveUpAndComeAgainAreBounded(t *testing.T) {
	for _, reserve := range calls[8:11] {
		t.Run(reserve.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now, most atomic.Int64 // calls that the store works on
				slow := slowStore(100 * time.Millisecond)
				l := newLimiter(t, drivertest.Over(slow, func(ctx context.Context, b *driver.Batch) error {
					switch {
					case len(b.Ops) > 1 && b.Ops[0].Kind == driver.Charge:
						return driver.ErrApart // as for keys of different slots
					case b.Ops[0].Kind == driver.Charge:
						most.Store(max(most.Load(), now.Add(1)))
						defer now.Add(-1)
					}
					return slow.Do(ctx, b)
				}), nil, sash.PerHour(100_000))
				const callers = 16
				var group sync.WaitGroup
				for range callers {
					group.Go(func() {
						for range 500 {
							ctx, stop := context.WithTimeout(t.Context(), 2*time.Millisecond)
							if err := reserve.make(ctx, l, "a", 1); !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
							stop()
						}
					})
				}
				group.Wait()
				if most := most.Load(); most > 2*(callers+15) { // ReserveAny looks at all at once
					t.Errorf("the store works on %d calls at once, for %d callers", most, callers)
				}
				time.Sleep(3 * time.Second)
				for _, s := range two("a", 1) {
					if left := remaining(t, l, s.Key); left != 100_000 {
						t.Errorf("%d units of %s stay charged", 100_000-left, s.Key)
					}
				}
			})
		})
	}
}

// callers make calls with deadlines of up to patience, again at once, for some time. It returns how many calls were
// made, and how many admitted.
func callers(t *testing.T, patience, during time.Duration, allow func(context.Context) (sash.Result, error)) (made, admitted int64) {
	var all, ok atomic.Int64
	var running sync.WaitGroup
	until := time.Now().Add(during)
	for caller := range uint64(8) {
		running.Go(func() {
			random := rand.New(rand.NewPCG(caller, 1))
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(t.Context(), 1+time.Duration(random.Int64N(int64(patience))))
				res, err := allow(ctx)
				cancel()
				all.Add(1)
				switch {
				case err == nil && res.Allowed:
					ok.Add(1)
				case !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("%+v, %v", res, err)
				}
			}
		})
	}
	running.Wait()
	return all.Load(), ok.Load()
}

// Callers whose deadlines are nearer than the store's answers do not fill the limit, and are admitted as soon as the store is faster.
func TestCallersWhoCannotWaitForTheStoreAreNotCharged(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *sash.Limiter) (sash.Result, error){
		"Allow": func(ctx context.Context, l *sash.Limiter) (sash.Result, error) { return l.Allow(ctx, "k") },
		"AllowAll": func(ctx context.Context, l *sash.Limiter) (sash.Result, error) {
			return l.AllowAll(ctx, two("k", 1)...)
		},
		"Allow of a limiter with other limits": func(ctx context.Context, l *sash.Limiter) (sash.Result, error) {
			other, err := l.With(l.Limits()...)
			if err != nil {
				return sash.Result{}, err
			}
			return other.Allow(ctx, "k")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var takes atomic.Int64
				l := newLimiter(t, slowBy(func() time.Duration { return time.Duration(takes.Load()) }), nil, sash.PerDay(100_000))
				allow := func(ctx context.Context) (sash.Result, error) { return ask(ctx, l) }
				charged := func() int64 { return 100_000 - remaining(t, l, "k") }

				takes.Store(int64(2 * time.Millisecond))
				_, admitted := callers(t, 1500*time.Microsecond, time.Second, allow)
				time.Sleep(time.Second)
				learned := charged()
				if admitted != 0 || learned > 60 {
					t.Errorf("%d were admitted, and %d charged until the limiter knew the store", admitted, learned)
				}
				_, admitted = callers(t, 1500*time.Microsecond, 2*time.Second, allow)
				time.Sleep(time.Second)
				if more := charged() - learned; admitted != 0 || more != 0 {
					t.Errorf("then %d were admitted and %d charged", admitted, more)
				}
				// Other callers, who can wait, are not kept back.
				for range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					if res, err := allow(ctx); err != nil || !res.Allowed {
						t.Errorf("%+v, %v", res, err)
					}
					cancel()
				}
				takes.Store(int64(100 * time.Microsecond))
				if made, admitted := callers(t, 1500*time.Microsecond, 100*time.Millisecond, allow); admitted < made*8/10 {
					t.Errorf("the store is fast, and %d of %d were admitted", admitted, made)
				}
				time.Sleep(time.Second) // for looks that outlive their callers
			})
		})
	}
}

func TestACallThatIsNotSentSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, slowStore(2*time.Millisecond), nil, sash.PerDay(100_000))
		allow := func(patience time.Duration) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			_, err := l.Allow(ctx, "k")
			return time.Since(began), err
		}
		must(allow(time.Minute))(t)
		took, err := allow(time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sash.ErrUnavailable) || took != time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
		if !strings.Contains(err.Error(), "not sent, so nothing is charged: the store usually takes 2ms, and the deadline left it 1ms") {
			t.Error(err)
		}
		time.Sleep(time.Second) // for the look that it left behind
		if left := remaining(t, l, "k"); left != 99_999 {
			t.Errorf("%d left", left)
		}
	})
}

// The store hangs, and then fails at once. Callers get its error, as they would without deadlines, not that of their own.
func TestAStoreThatFailsAtOnceKeepsNoCallersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(nil))
		store.Hang(nil)
		l := newLimiter(t, store, nil, sash.PerDay(100_000))
		call := func(patience time.Duration) (failed int) {
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if _, err := l.Allow(ctx, "k"); errors.Is(err, sash.ErrUnavailable) {
					failed++
				}
				cancel()
			}
			return failed
		}
		_ = call(50 * time.Millisecond)
		store.Fail(errors.New("connection refused"))
		if failed := call(20 * time.Millisecond); failed < 98 {
			t.Errorf("%d of 100 calls got the store's error", failed)
		}
		time.Sleep(time.Second) // for looks that outlive their callers
	})
}

// However near the deadlines are, not many more calls are charged in vain than admitted: 1 in 40 of all that are made. It is 1 in 80
// where most deadlines are nearer than the median answer, with a standard deviation of 1 in 500 between seeds.
func TestHalfOfTheCallsThatAreSentAreAdmitted(t *testing.T) {
	for patience := 500 * time.Microsecond; patience < 4*time.Millisecond; patience *= 2 {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Uint64
			l := newLimiter(t, slowBy(func() time.Duration {
				random := rand.New(rand.NewPCG(asked.Add(1), 2))
				return 100*time.Microsecond + time.Duration(random.Int64N(int64(1900*time.Microsecond)))
			}), nil, sash.PerDay(100_000))
			made, admitted := callers(t, patience, time.Second, func(ctx context.Context) (sash.Result, error) { return l.Allow(ctx, "k") })
			time.Sleep(time.Second) // for looks that outlive their callers
			lost := 100_000 - remaining(t, l, "k") - admitted
			if lost > admitted+made/40 {
				t.Errorf("deadlines of up to %v: %d of %d were admitted, and %d charged in vain", patience, admitted, made, lost)
			}
		})
	}
}
