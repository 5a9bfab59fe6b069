package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/window"
	"example.com/sash/memstore"
)

// A fullJudge holds decisions against what a full store promises: a call that was refused, or that found no unit left, is not
// admitted before its time because of calls of other keys.
type fullJudge struct {
	barred map[string][]bar
}

// A bar says until when calls of a key that cost at least so much are refused.
type bar struct{ cost, until int64 }

// learn notes what an answer says about later calls of the key, and returns what it contradicts.
func (j *fullJudge) learn(req driver.Request, answer driver.Answer) error {
	statuses := answer.Statuses()
	if answer.Allowed() && req.Cost > 0 {
		for _, b := range j.barred[req.Key] {
			if req.Cost >= b.cost && answer.At < b.until {
				return fmt.Errorf("%s is admitted at cost %d, %d µs before a call of cost %d may be", req.Key, req.Cost, b.until-answer.At, b.cost)
			}
		}
	}
	for i, s := range statuses {
		if answer.Refusals&(1<<i) != 0 {
			j.barred[req.Key] = append(j.barred[req.Key], bar{req.Cost, answer.At + s.Retry})
		}
		if s.Remaining == 0 {
			j.barred[req.Key] = append(j.barred[req.Key], bar{1, answer.At + s.Release})
		}
	}
	return nil
}

// fullWorld is a small store with more callers than it holds.
type fullWorld struct {
	store    *memstore.Store
	clock    *judge.Clock
	policies []*driver.Policy
	random   *rand.Rand
}

func newFullWorld(t *testing.T, seed uint64, a sash.Algorithm, opts memstore.Options) *fullWorld {
	t.Helper()
	w := &fullWorld{clock: judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)), random: rand.New(rand.NewPCG(seed, 5))}
	opts.Now = w.clock.Now
	w.store = memstore.New(&opts)
	options := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		options.Resolution = 5 * time.Millisecond
	}
	for _, limits := range [][]sash.Limit{
		{sash.Every(1, 50*time.Millisecond)}, {sash.Every(10, 20*time.Millisecond)},
		{sash.Every(3, 10*time.Millisecond), sash.Every(5, 100*time.Millisecond)},
	} {
		policy := newPolicy(t, options, limits...)
		w.policies = append(w.policies, policy)
	}
	return w
}

// request returns a call of one of n keys, each of which has its own limits.
func (w *fullWorld) request(n int) driver.Request {
	key := w.random.IntN(n)
	policy := w.policies[key%len(w.policies)]
	cost := 1 + w.random.Int64N(policy.Limits[0].Units)
	if w.random.IntN(2) == 0 {
		cost = 1
	}
	return driver.Request{Key: fmt.Sprint("k", key), Cost: cost, Policy: policy}
}

// decide decides by each of the ways of a store.
func (w *fullWorld) decide(t *testing.T, step int) (reqs []driver.Request, answers []driver.Answer, err error) {
	reqs = []driver.Request{w.request(40)}
	var answer driver.Answer
	switch w.random.IntN(4) {
	case 0:
		if other := w.request(40); other.Key != reqs[0].Key {
			reqs = append(reqs, other)
		}
		answers, err = drivertest.Of(w.store).All(t.Context(), reqs...)
		return reqs, answers, err
	case 1:
		answer, err = drivertest.Of(w.store).Once(t.Context(), fmt.Sprint(step), reqs[0])
	default:
		answer, err = driver.Decide(t.Context(), w.store, reqs[0])
	}
	return reqs, []driver.Answer{answer}, err
}

func TestAFullStoreFreesNoRefusedCaller(t *testing.T) {
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			evicted, full, refused := uint64(0), 0, 0
			for seed := range uint64(15) {
				w := newFullWorld(t, seed, a, memstore.Options{MaxBytes: 12 * memstore.KeyBytes})
				j := fullJudge{make(map[string][]bar)}
				for step := range 1500 {
					w.clock.Advance(time.Duration(w.random.IntN(2)*w.random.IntN(3000)) * time.Microsecond)
					before := w.store.Stats().Evicted
					reqs, answers, err := w.decide(t, step)
					if errors.Is(err, memstore.ErrFull) {
						if after := w.store.Stats().Evicted; len(reqs) == 1 && after != before {
							t.Fatalf("seed %d, step %d: %d keys were evicted for a call that was turned away", seed, step, after-before)
						}
						full++
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					for i := range answers {
						if answers[i].Refusals != 0 {
							refused++
						}
						if answers[i].Refusals == 0 && slices.ContainsFunc(answers, func(a driver.Answer) bool { return !a.Allowed() }) {
							continue // it has room, and is not admitted
						}
						if err := j.learn(reqs[i], answers[i]); err != nil {
							t.Fatalf("seed %d, step %d: %v", seed, step, err)
						}
					}
				}
				stats := w.store.Swept()
				evicted += stats.Evicted
				if stats.Bytes > stats.MaxBytes {
					t.Fatalf("%+v", stats)
				}
			}
			if evicted == 0 || full == 0 || refused == 0 {
				t.Errorf("%d evicted, %d errors, %d refused: this test shows nothing", evicted, full, refused)
			}
		})
	}
}

// A new key is turned away only while every key of its shard is refused.
func TestAFullStoreTakesNewKeysWhileOneHasRoom(t *testing.T) {
	const most = 60 // in one shard
	store, clock := newStore(t, most)
	two, one := newLimiter(t, store, sash.SlidingLog, sash.Every(2, time.Minute)), newLimiter(t, store, sash.SlidingLog, sash.Every(1, time.Minute))
	allow(t, two, "has room")
	for i := range most - 1 {
		allow(t, one, fmt.Sprint("refused ", i))
	}
	allow(t, one, "takes the place")
	if _, err := one.Allow(t.Context(), "one more"); !errors.Is(err, memstore.ErrFull) || !errors.Is(err, sash.ErrUnavailable) {
		t.Errorf("all are refused: %v", err)
	}
	if res, err := two.Peek(t.Context(), "one more"); err != nil || res.Remaining != 2 {
		t.Errorf("a look at a key that is not held: %+v, %v", res, err)
	}
	for i := range most - 1 {
		if allow(t, one, fmt.Sprint("refused ", i)).Allowed {
			t.Fatal("a refused key was freed")
		}
	}
	want := memstore.Stats{Keys: most, Bytes: most * memstore.KeyBytes, MaxBytes: most * memstore.KeyBytes, Evicted: 1, TurnedAway: 1}
	if got := store.Swept(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	clock.Advance(time.Minute)
	allow(t, one, "one more")
}

// The victim is the least used of a few: many that use little do not free one that uses much.
func TestAFullStoreEvictsTheLeastUsed(t *testing.T) {
	store, clock := newStore(t, 60)
	l := newLimiter(t, store, sash.SlidingLog, sash.Every(100, time.Hour))
	for range 50 {
		allow(t, l, "heavy")
	}
	for i := range 20_000 {
		clock.Advance(time.Microsecond)
		allow(t, l, fmt.Sprint(i))
	}
	if res := allow(t, l, "heavy"); res.Remaining != 49 {
		t.Errorf("%d remain of 100 after 51 were used", res.Remaining)
	}
}

// A call over several keys that finds no room for one of them charges none.
func TestACallOverSeveralKeysThatAFullStoreTurnsAwayChargesNothing(t *testing.T) {
	store := memstore.New(&memstore.Options{MaxBytes: 1})
	allow(t, newLimiter(t, store, sash.SlidingLog, sash.PerHour(1)), "held") // and so it is not evicted
	l := newLimiter(t, store, sash.SlidingLog, sash.PerHour(5))
	for _, keys := range [][2]string{{"held", "new"}, {"new", "held"}} {
		_, err := l.AllowAll(t.Context(), sash.Subject{Key: keys[0], Cost: 1}, sash.Subject{Key: keys[1], Cost: 1})
		if !errors.Is(err, memstore.ErrFull) {
			t.Errorf("%v: %v", keys, err)
		}
	}
	if res, err := l.Peek(t.Context(), "held"); err != nil || res.Remaining != 4 {
		t.Errorf("%d remain, %v", res.Remaining, err)
	}
	if got := store.Swept().Keys; got != 1 {
		t.Errorf("%d keys", got)
	}
}

func TestAKeyWithBookingsIsNotEvicted(t *testing.T) {
	store, clock := newStore(t, 1)
	l := newLimiter(t, store, sash.SlidingLog, sash.Every(3, time.Second))
	for range 2 { // there is always a unit left
		_ = memstore.Must(l.Reserve(t.Context(), "k", 2, &sash.ReserveOptions{WaitUpTo: time.Minute}))(t)
	}
	clock.Advance(999 * time.Millisecond)
	if _, err := l.Allow(t.Context(), "new"); err == nil {
		t.Error("a new key took the place of one with a booking ahead")
	}
	clock.Advance(time.Millisecond)
	if _, err := l.Allow(t.Context(), "new"); err != nil {
		t.Errorf("once the booking has started: %v", err)
	}
}

// A call over several keys evicts none of them for the others.
func TestACallOverSeveralKeysEvictsNoneOfThem(t *testing.T) {
	store, _ := newStore(t, 4)
	l := newLimiter(t, store, sash.SlidingLog, sash.PerHour(5))
	for i := range 500 {
		subjects := []sash.Subject{{Key: "stays", Cost: 1}}
		for k := range 3 {
			subjects = append(subjects, sash.Subject{Key: fmt.Sprint(i, " ", k), Cost: 1})
		}
		memstore.Check(t, l.Reset(t.Context(), "stays"))
		_ = memstore.Must(l.AllowAll(t.Context(), subjects...))(t)
		for _, s := range subjects {
			if res, err := l.Peek(t.Context(), s.Key); err != nil || res.Remaining != 4 {
				t.Fatalf("round %d: %q has %d left, %v", i, s.Key, res.Remaining, err)
			}
		}
	}
}

// A key whose units are used up by a settlement is not evicted either, and one whose units were all given back is.
func TestSettlementsInAFullStore(t *testing.T) {
	for name, c := range map[string]struct{ reserved, settled int64 }{"used up": {1, 10}, "given back": {10, 0}} {
		store, _ := newStore(t, 2) // of one key with the ID of a settlement
		l := newLimiter(t, store, sash.SlidingLog, sash.PerHour(10))
		r := memstore.Must(l.Reserve(t.Context(), "k", c.reserved, nil))(t)
		memstore.Check(t, r.Settle(t.Context(), c.settled))
		_, err := l.Allow(t.Context(), "new")
		if stays := errors.Is(err, memstore.ErrFull); stays != (c.settled > 0) {
			t.Errorf("%s: %v for a new key", name, err)
		}
	}
}

// Callers that make the store hold as much as they can fill it, and no more: of keys that may be evicted and of keys that may
// not, with IDs and with bookings.
func TestTheHeapStaysWithinTheBound(t *testing.T) {
	const most = 4 << 20
	var held []*sash.Reservation
	for name, attack := range map[string]func(ctx context.Context, s *memstore.Store, l [3]*sash.Limiter, i int) error{
		"new keys": func(ctx context.Context, _ *memstore.Store, l [3]*sash.Limiter, i int) error {
			_, err := l[0].Allow(ctx, fmt.Sprintf("a key of forty bytes %019d", i))
			return err
		},
		"refused keys": func(ctx context.Context, _ *memstore.Store, l [3]*sash.Limiter, i int) error {
			_, err := l[1].Allow(ctx, fmt.Sprint(i))
			return err
		},
		"windows": func(ctx context.Context, s *memstore.Store, _ [3]*sash.Limiter, i int) error {
			l := memstore.Must(sash.New(s, &sash.Options{Algorithm: sash.SlidingCounter}, sash.PerDay(9)))(t)
			_, err := memstore.Must(l.With(sash.Every(9, time.Duration(i%300+1)*time.Second)))(t).Allow(ctx, fmt.Sprint(i/300))
			return err
		},
		"charges": func(ctx context.Context, _ *memstore.Store, l [3]*sash.Limiter, i int) error {
			_, err := l[0].Allow(ctx, fmt.Sprint(i%200))
			return err
		},
		"IDs of few keys": func(ctx context.Context, _ *memstore.Store, l [3]*sash.Limiter, i int) error {
			_, err := l[0].AllowOnce(ctx, fmt.Sprint(i), fmt.Sprint(i%20), 1)
			return err
		},
		"an ID of each key": func(ctx context.Context, _ *memstore.Store, l [3]*sash.Limiter, i int) error {
			_, err := l[1].AllowOnce(ctx, "first", fmt.Sprint(i), 1)
			return err
		},
		"settlements": func(ctx context.Context, _ *memstore.Store, l [3]*sash.Limiter, i int) error {
			if i >= 11_000 {
				return held[i%11_000].Settle(ctx, 2)
			}
			r, err := l[1].Reserve(ctx, fmt.Sprint(i), 1, nil)
			held = append(held, r)
			return err
		},
		"charges of two keys": func(ctx context.Context, _ *memstore.Store, l [3]*sash.Limiter, i int) error {
			_, err := l[0].AllowAll(ctx, sash.Subject{Key: fmt.Sprint(i % 200), Cost: 1}, sash.Subject{Key: "with all", Cost: 1})
			return err
		},
		"bookings": func(ctx context.Context, _ *memstore.Store, l [3]*sash.Limiter, i int) error {
			_, err := l[2].Reserve(ctx, fmt.Sprint(i%100), 1, &sash.ReserveOptions{WaitUpTo: sash.MaxWindow})
			return err
		},
		"cool-downs": func(ctx context.Context, s *memstore.Store, _ [3]*sash.Limiter, i int) error {
			_, err := drivertest.Of(s).Cool(ctx, fmt.Sprint(i), driver.CoolDown{Length: time.Hour.Microseconds()})
			return err
		},
		"leases": func(ctx context.Context, s *memstore.Store, _ [3]*sash.Limiter, i int) error {
			key, long := fmt.Sprint(i%7000), time.Hour.Microseconds()
			held, err := s.Spend(ctx, window.Spending{Key: key, Cost: 1, Longest: long})
			if err == nil && held.Fetch > 0 {
				_, err = s.Bring(ctx, window.Fetch{Key: key, Began: held.At, Longest: long, Units: 1, Rest: -1, Reply: strings.Repeat("n", 100)})
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, clock := newStore(t, most/memstore.KeyBytes)
			var l [3]*sash.Limiter
			for i, limit := range []sash.Limit{sash.PerDay(1 << 30), sash.PerHour(1), sash.Every(1, 100*time.Millisecond)} {
				l[i] = newLimiter(t, store, sash.SlidingLog, limit)
			}
			before, n, full := heap(), 0, 0
			for ; n < 1_000_000 && full < 1000 && store.Stats().Evicted < 1000; n++ {
				clock.Advance(time.Microsecond)
				if err := attack(t.Context(), store, l, n); errors.Is(err, memstore.ErrFull) {
					full++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			held = nil
			grown := heap() - before
			t.Logf("%d calls, %d full: the heap has grown to %.2f of the bound, %+v", n, full, float64(grown)/most, store.Stats())
			if s := store.Stats(); s.Bytes > s.MaxBytes*102/100 || grown > most*5/4 || grown < most*3/4 {
				t.Errorf("the heap has grown by %d bytes with a bound of %d", grown, most)
			}
			runtime.KeepAlive(store)
		})
	}
}

// A full store decides calls that need no memory as any store does, and evicts nothing for them: refusals, also of a log
// without a free place, and charges that take the place of those that have left.
func TestAFullStoreDecidesWhatNeedsNoMemory(t *testing.T) {
	const keys = 50
	store, clock := newStore(t, keys)
	l := newLimiter(t, store, sash.SlidingLog, sash.PerHour(4)) // as many as a log has places for at first
	call := func(allowed bool) {
		t.Helper()
		for k := range keys {
			clock.Advance(time.Millisecond)
			if res := allow(t, l, fmt.Sprint(k)); res.Allowed != allowed {
				t.Fatalf("key %d: %+v", k, res)
			}
		}
	}
	for range 4 {
		call(true)
	}
	call(false)
	if r, err := l.Reserve(t.Context(), "7", 1, &sash.ReserveOptions{WaitUpTo: time.Minute}); err != nil || r.Allowed() {
		t.Errorf("a booking that comes too late: %v", err)
	}
	if _, err := l.Reserve(t.Context(), "7", 1, &sash.ReserveOptions{WaitUpTo: 2 * time.Hour}); !errors.Is(err, memstore.ErrFull) {
		t.Errorf("a booking for which the log has no place: %v", err)
	}
	clock.Advance(time.Hour)
	call(true)
	if s := store.Stats(); s.Keys != keys || s.Evicted != 0 || s.TurnedAway != 1 {
		t.Errorf("%+v", s)
	}
}

// heap returns the bytes that the heap holds.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
