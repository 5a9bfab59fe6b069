package sash_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
)

// Half more is requested than a limit of 20 a second has, by one process or four, at one cost or several, of one subject or of two,
// one of them each client's own, also beside a limit of the calendar, and clients leave after
// a second, or at any moment, or half of them stay. As many units are served as one line serves that keeps strictly to the order
// in which they came, with two decisions for each admission or fewer (up to three, as goroutines run, and four where a call may
// cost all there is), those for clients who leave included. When places of those who leave stay empty, nobody is served after four seconds.
func TestCallersWhoHangUpStarveNobody(t *testing.T) {
	for _, load := range []struct {
		most  int64
		two   bool
		other []sash.Limit
	}{{1, false, nil}, {2, false, nil}, {5, false, nil}, {1, true, nil}, {2, true, nil}, {1, true, calendar}, {1, false, calendar}, {10, false, nil}, {20, false, nil}} {
		for _, stay := range []string{"a second", "any time", "or not"} {
			for _, processes := range []int{1, 4} {
				t.Run(fmt.Sprintf("costs of 1 to %d, two %v, %d more, %d processes, stay %s", load.most, load.two, len(load.other), processes, stay), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { hangUps(t, load.most, load.two, load.other, stay, processes) })
				})
			}
		}
	}
}

// calendar has room for every call of a test.
var calendar = []sash.Limit{sash.PerCalendar(90_000, sash.CalendarDay, time.UTC)}

func hangUps(t *testing.T, most int64, two bool, other []sash.Limit, stay string, processes int) {
	const perSecond = 20
	lasts := 40 * time.Second
	if most > 5 { // few calls, of which one is a second's units
		lasts *= 10
	}
	r := rand.New(rand.NewPCG(1, uint64(most)))
	var clients []client
	for at := time.Duration(0); at < lasts; {
		c := client{cost: 1 + r.Int64N(most), comes: at, stays: time.Second}
		switch {
		case stay == "or not" && r.IntN(2) == 0:
			c.stays = 5 * time.Second
		case stay != "a second":
			c.stays = time.Duration(r.ExpFloat64() * float64(time.Second))
		}
		clients = append(clients, c)
		at += time.Second / 30 * time.Duration(1+most) / 2
	}
	store := newBookStore()
	var limiters []*sash.Limiter
	for range processes {
		limiters = append(limiters, newLimiter(t, store, nil, append(other, sash.PerSecond(perSecond))...))
	}
	var served, admitted atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for i, c := range clients {
		group.Go(func() {
			time.Sleep(c.comes)
			ctx, hangUp := context.WithTimeout(t.Context(), time.Hour)
			defer hangUp()
			defer time.AfterFunc(c.stays, hangUp).Stop()
			wait := func() error { return limiters[i%processes].WaitN(ctx, "k", c.cost) }
			if two {
				wait = func() error {
					own := sash.Subject{Key: fmt.Sprint("own", i%50), Cost: c.cost}
					_, all, err := reserveAll(ctx, limiters[i%processes], time.Hour, sash.Subject{Key: "k", Cost: c.cost}, own)
					if err != nil {
						return err
					}
					return all[0].Wait(ctx)
				}
			}
			if err := wait(); err == nil && time.Since(began) < lasts {
				served.Add(c.cost)
				admitted.Add(1)
			} else if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	possible, decisions := inOneLine(clients, perSecond, lasts), store.decisions.Load()+store.questions.Load()
	each := float64(decisions) / float64(admitted.Load())
	t.Logf("%d of %d units, and %.2f decisions an admission, %.2f a caller", served.Load(), possible, each, float64(decisions)/float64(len(clients)))
	if n := store.decisions.Load(); n > int64(len(clients)) {
		t.Errorf("%d bookings for %d callers", n, len(clients))
	}
	least, decided := int64(97), 3.0
	if most > 5 {
		least, decided = 95, 4
	}
	if served.Load() < possible*least/100 || each > decided {
		t.Errorf("%d of %d units are served, with %.2f decisions an admission", served.Load(), possible, each)
	}
}

// A client comes at a moment and leaves after a time.
type client struct {
	cost         int64
	comes, stays time.Duration
}

// inOneLine returns the units that are served in a time when the first who has not left starts as soon as it fits.
func inOneLine(line []client, perSecond int64, lasts time.Duration) (served int64) {
	var charged []client // by when they start
	used := int64(0)
	for now := time.Duration(0); now < lasts; now += time.Millisecond {
		for len(charged) > 0 && charged[0].comes <= now-time.Second {
			used, charged = used-charged[0].cost, charged[1:]
		}
		for len(line) > 0 && line[0].comes <= now {
			c := line[0]
			if left := c.comes+c.stays <= now; !left && used+c.cost > perSecond {
				break
			} else if !left {
				used, served, charged = used+c.cost, served+c.cost, append(charged, client{c.cost, now, 0})
			}
			line = line[1:]
		}
	}
	return served
}

// Callers of two costs leave at any moment, or are settled by somebody else while they wait, and answers overtake each
// other, or the callers of one process or three settle to what they used: nobody who stays starts later than promised or behind
// one of its process and cost who came when it was waiting already, no window has more than its units, estimates counted until they
// are settled, and what is not used is free.
func TestAQueueKeepsItsPromises(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			limit := sash.Every(4+r.Int64N(8), time.Second)
			upTo := func(d time.Duration) time.Duration {
				return time.Duration(r.Int64N(d.Microseconds())) * time.Microsecond
			}
			inner, most, unsteady := newBookStore(), time.Duration(1), seed%2 == 1
			if unsteady {
				most = time.Duration(1 + r.Int64N(int64(200*time.Millisecond)))
			}
			store := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error { // answers take up to a time
				switch op := &b.Ops[0]; {
				case op.Kind == driver.Extend:
					defer time.Sleep(rand.N(most) / 100)
				case op.Kind == driver.Charge && len(b.Ops) == 1:
					defer time.Sleep(rand.N(most))
				}
				return inner.Do(ctx, b)
			})
			limiters := []*sash.Limiter{newLimiter(t, store, nil, limit)}
			if !unsteady && seed%4 == 0 {
				limiters = append(limiters, newLimiter(t, store, nil, limit), newLimiter(t, store, nil, limit))
			}
			type caller struct {
				process                     int
				cost, used                  int64
				two, settled                bool
				came, waited, starts, fixed time.Time
			}
			var mu sync.Mutex
			var started []caller
			var group sync.WaitGroup
			for i := range 150 {
				time.Sleep(upTo(100 * time.Millisecond))
				c := caller{process: i % len(limiters), cost: 1 + r.Int64N(2)*2, two: r.IntN(4) == 0, came: time.Now()}
				holds := time.Duration(0)
				if c.used = c.cost; !unsteady && r.IntN(4) > 0 {
					c.used, holds = r.Int64N(c.cost+1), upTo(time.Second/2)
				}
				ctx, leave := context.WithCancel(t.Context())
				leaves, settles := upTo(6*time.Second), upTo(10*time.Second)
				group.Go(func() {
					defer leave()
					subjects := []sash.Subject{{Key: "k", Cost: c.cost}, {Key: "other", Cost: c.cost}}
					if !c.two {
						subjects = subjects[:1]
					}
					_, all, err := reserveAll(t.Context(), limiters[c.process], time.Hour, subjects...)
					if err != nil {
						t.Error(err)
						return
					}
					c.waited = time.Now()
					promised := c.waited.Add(all[0].StartsIn())
					if leaves < 3*time.Second {
						time.AfterFunc(leaves, leave)
					}
					waits := true // guarded by mu
					if settles < 2*time.Second {
						time.AfterFunc(settles, func() {
							mu.Lock()
							defer mu.Unlock()
							if c.settled = waits; waits {
								go func() { _ = all[len(all)-1].Cancel(t.Context()) }()
							}
						})
					}
					err = all[0].Wait(ctx)
					mu.Lock()
					if waits = false; err != nil {
						mu.Unlock()
						return
					}
					if c.starts = time.Now(); c.starts.After(promised) {
						t.Errorf("seed %d: caller %d starts %v late", seed, i, c.starts.Sub(promised))
					}
					c.fixed = c.starts.Add(holds)
					started = append(started, c)
					mu.Unlock()
					if c.used < c.cost {
						time.Sleep(holds)
						for _, part := range all {
							report(t, part.Settle(t.Context(), c.used))
						}
					}
				})
			}
			group.Wait()
			for _, a := range started {
				var units int64 // in the window that ends when it starts
				for _, b := range started {
					switch {
					case b.starts.After(a.starts) || !b.starts.After(a.starts.Add(-limit.Window)):
					case b.fixed.After(a.starts):
						units += b.cost
					default:
						units += b.used
					}
					if a.process == b.process && a.cost == b.cost && a.two == b.two && !a.settled && a.waited.Before(b.came) && a.starts.After(b.starts) {
						t.Errorf("seed %d: a caller of cost %d that came after %v starts %v before one that was waiting", seed, a.cost, b.came.Sub(a.waited), a.starts.Sub(b.starts))
					}
				}
				if units > limit.Units && !unsteady { // starts are later than their instants by as much as answers take
					t.Errorf("seed %d: %d of %d units start in one window", seed, units, limit.Units)
				}
			}
			time.Sleep(2 * time.Second)
			if res, err := limiters[0].Peek(t.Context(), "k"); err != nil || res.Remaining != limit.Units {
				t.Errorf("seed %d: %d of %d left, %v", seed, res.Remaining, limit.Units, err)
			}
		})
	}
}

// A booking that is settled while its caller waits keeps the place that it would have had, and one behind it comes forward when
// a place begins that was given back.
func TestABookingIsSettledWhileItsCallerWaits(t *testing.T) {
	for _, units := range []int64{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newBookStore(), nil, sash.Every(1, time.Second))
			began := time.Now()
			var all []*sash.Reservation
			said := make([]string, 4)
			var group sync.WaitGroup
			for i := range said {
				r := book(t, l, "k", 1)
				all = append(all, r)
				group.Go(func() {
					err := r.Wait(t.Context())
					said[i] = fmt.Sprint(time.Since(began).Round(time.Millisecond), " ", err == nil)
				})
				synctest.Wait()
			}
			time.Sleep(time.Second / 2)
			check(t, all[2].Settle(t.Context(), units))
			group.Wait()
			want := []string{"0s true", "1s true", "2s true", "3s true"}
			if units == 0 {
				want[2], want[3] = "2s false", "2s true"
			}
			if !slices.Equal(said, want) {
				t.Errorf("settled to %d: %v, want %v", units, said, want)
			}
		})
	}
}

// Whoever waits for the same booking learns that another has given it back.
func TestTwoWaitForOneBooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(1, time.Second))
		check(t, l.Wait(t.Context(), "k"))
		r := book(t, l, "k", 1)
		ctx, leave := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		go func() { errs <- r.Wait(ctx) }()
		go func() { errs <- r.Wait(t.Context()) }()
		synctest.Wait()
		leave()
		for range 2 {
			if err := <-errs; err == nil {
				t.Error("a caller starts on a booking that was given back")
			}
		}
	})
}

// What was given back before its caller waits is no place for another: two would start on one.
func TestASettledBookingBringsNoPlaceIntoItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(1, time.Second))
		check(t, l.Wait(t.Context(), "k"))
		began := time.Now()
		given, kept := book(t, l, "k", 1), book(t, l, "k", 1)
		check(t, given.Cancel(t.Context()))
		ctx, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if err := given.Wait(ctx); err == nil {
				t.Error("a caller starts on a booking that was given back")
			}
		})
		group.Go(func() {
			if err := kept.Wait(t.Context()); err != nil || time.Since(began) != time.Second { // where the other one was
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
		synctest.Wait()
		leave()
		group.Wait()
	})
}
