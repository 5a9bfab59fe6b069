package lease_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

// A lease has units, and others have booked: a booking from the lease would overtake them.
func TestABookingIsDecidedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		store := newStore(t, inner)
		l := newLimiter(t, store, nil, sash.PerMinute(100_000))
		warm(t, l)
		leased := 0
		for range 100 {
			answer, err := store.Decide(t.Context(), driver.Request{Key: "k", Cost: 1, Policy: l.Policy(), Within: driver.MaxAhead})
			if err != nil || !answer.Allowed() || answer.Source != driver.FromStore {
				t.Fatalf("%+v, %v", answer, err)
			}
			if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			} else if res.Source == driver.FromLease {
				leased++
			}
		}
		if leased < 50 {
			t.Errorf("only %d of 100 calls were admitted out of a lease: this test shows nothing", leased)
		}
	})
}

// Bookings are counted over the longer windows, however they reach the store: else a unit of a lease could be spent when
// a booking that took its room has started.
func TestBookingsAreUnderTheLongerWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, limit := newStore(t, newFar()), sash.Every(10, time.Second)
		p, err := sash.NewPolicy(nil, limit)
		if err != nil {
			t.Fatal(err)
		}
		req := driver.Request{Key: "k", Cost: 10, Policy: p, Within: driver.MaxAhead}
		want := (limit.Window + longest).Microseconds()
		var last int64
		check := func(how string, answer driver.Answer, err error) {
			t.Helper()
			if err != nil || !answer.Allowed() || last > 0 && answer.At-last != want {
				t.Errorf("%s: %d µs after the one before, %+v, %v", how, answer.At-last, answer, err)
			}
			last = answer.At
		}
		answer, err := store.Decide(t.Context(), req)
		check("first", answer, err)
		answer, err = store.Decide(t.Context(), req)
		check("Decide", answer, err)
		answer, err = store.DecideOnce(t.Context(), "id", req)
		check("DecideOnce", answer, err)
		for how, decide := range map[string]func() ([]driver.Answer, error){
			"DecideAll":  func() ([]driver.Answer, error) { return store.DecideAll(t.Context(), []driver.Request{req}) },
			"DecideEach": func() ([]driver.Answer, error) { return store.DecideEach(t.Context(), []driver.Request{req}) },
		} {
			answers, err := decide()
			if err != nil {
				t.Fatal(err)
			}
			check(how, answers[0], nil)
		}
	})
}

// Processes with a lease each, whose callers book or do not. What starts, when it starts, keeps to every limit.
func TestNeverMoreThanTheLimitWithBookings(t *testing.T) {
	var leased, booked, ahead atomic.Int64
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 14))
			inner := newFarAtRandom(random)
			limits := []sash.Limit{
				sash.Every(50+random.Int64N(1000), time.Duration(150+random.IntN(400))*time.Millisecond),
				sash.Every(500+random.Int64N(2000), time.Duration(600+random.IntN(900))*time.Millisecond),
			}
			var mu sync.Mutex
			var started []judge.Call
			var wg sync.WaitGroup
			for p := range 3 {
				store := newStore(t, inner)
				policy := newLimiter(t, store, nil, limits...).Policy()
				for w := range 8 {
					random := rand.New(rand.NewPCG(seed, uint64(100*p+w)))
					pause := 1 + random.IntN(4000)
					wg.Go(func() {
						for range 300 {
							time.Sleep(time.Duration(random.IntN(pause)) * time.Microsecond)
							req := driver.Request{Key: "k", Cost: 1 + random.Int64N(3), Policy: policy, MaySettle: true}
							if w < 2 {
								req.Within = random.Int64N(time.Second.Microseconds())
							}
							answer, err := store.Decide(t.Context(), req)
							if err != nil || !answer.Allowed() {
								continue
							}
							at := time.UnixMicro(answer.At)
							switch {
							case answer.Source == driver.FromLease:
								at = time.Now()
								leased.Add(1)
							case req.Within > 0:
								booked.Add(1)
								if answer.Delay > 0 {
									ahead.Add(1)
								}
							}
							if req.Within > 0 && random.IntN(5) == 0 { // it leaves, and gives its place back
								set := driver.Settlement{Request: req, At: answer.At, Delay: answer.Delay, Source: answer.Source}
								if err := store.Settle(t.Context(), set); err != nil {
									t.Error(err)
								}
								continue
							}
							mu.Lock()
							started = append(started, judge.Call{At: at, Cost: req.Cost})
							mu.Unlock()
							time.Sleep(time.Duration(answer.Delay) * time.Microsecond)
						}
						_ = store.Release(t.Context())
					})
				}
			}
			wg.Wait()
			if err := judge.CheckHistory(limits, started); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	t.Logf("%d from leases, %d booked, %d of them ahead", leased.Load(), booked.Load(), ahead.Load())
	if leased.Load() < 1000 || ahead.Load() < 1000 {
		t.Error("too few: this test shows nothing")
	}
}
