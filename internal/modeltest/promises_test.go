package modeltest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
)

// A sorted set gives units back at once behind 999 later calls. Behind 1,000 they stay until they leave the window.
func TestASortedSetGivesNothingBackBehindAThousandCalls(t *testing.T) {
	server := redistest.Start(t)
	for later, back := range map[int]int64{999: 2, 1000: 0} {
		store, clock, _ := virtual(t, server.Addr(), nil)
		policy := newPolicy(t, &sash.Options{Algorithm: sash.SortedSetLog}, sash.PerHour(5000))
		key := "behind " + time.Duration(later).String()
		decide := func(cost int64) *driver.Answer {
			t.Helper()
			clock.Advance(time.Microsecond)
			answer, err := store.Decide(t.Context(), driver.Request{Key: key, Cost: cost, Policy: policy, MaySettle: true})
			if err != nil || !answer.Allowed() {
				t.Fatalf("%+v, %v", answer, err)
			}
			return &answer
		}
		req := driver.Request{Key: key, Cost: 2, Policy: policy, MaySettle: true}
		set := driver.Settlement{Request: req, At: decide(2).At}
		for range later {
			decide(1)
		}
		if err := store.Settle(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		if left, want := decide(0).Remaining(), 5000-int64(later)-2+back; left != want {
			t.Errorf("behind %d calls %d are left, want %d", later, left, want)
		}
		clock.Advance(time.UnixMicro(set.At).Add(time.Hour - time.Microsecond).Sub(clock.Now()))
		if left, want := decide(0).Remaining(), 5000-int64(later); left != want {
			t.Errorf("an hour after the charge %d are left, want %d", left, want)
		}
	}
}

// When the clock goes back after a key has expired, its charges do not come back. At most N more are admitted, as when
// the state is lost.
func TestAClockThatGoesBackBringsNoExpiredChargesBack(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			store, clock, _ := virtual(t, server.Addr(), nil)
			policy := newPolicy(t, options(a), sash.PerMinute(3))
			admitted := func() (n int) {
				for range 10 {
					answer, err := store.Decide(t.Context(), driver.Request{Key: "expired", Cost: 1, Policy: policy})
					if err != nil {
						t.Fatal(err)
					}
					if answer.Allowed() {
						n++
					}
				}
				return n
			}
			if n := admitted(); n != 3 {
				t.Fatalf("%d of 3 were admitted", n)
			}
			clock.Advance(time.Hour)
			if _, err := store.Decide(t.Context(), driver.Request{Key: "expired", Policy: policy}); err != nil { // the key goes
				t.Fatal(err)
			}
			clock.Advance(time.Second - time.Hour)
			if n := admitted(); n != 3 {
				t.Errorf("after the clock went back %d were admitted, want 3", n)
			}
		})
	}
}

// An entry of a log holds at most 2^40-1 units. Where one step would hold more, because refused calls are charged, Redis
// and memory keep two entries, and return the same times.
func TestAStepOfMoreUnitsThanAnEntryHolds(t *testing.T) {
	server := redistest.Start(t)
	redis, clock, _ := virtual(t, server.Addr(), nil)
	memory := memstore.New(&memstore.Options{Now: clock.Now})
	opts := &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: time.Second, CountRefused: true}
	policy := newPolicy(t, opts, sash.PerHour(sash.MaxUnits))
	for i := range 8 {
		var statuses [2]driver.Status
		for j, store := range []driver.Store{redis, memory} {
			req := driver.Request{Key: "absurd", Cost: sash.MaxUnits / 2, Policy: policy}
			answer, err := store.Decide(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			statuses[j] = answer.Statuses()[0]
		}
		if statuses[0] != statuses[1] {
			t.Errorf("call %d: Redis says %+v, memory %+v", i, statuses[0], statuses[1])
		}
		clock.Advance(3 * time.Microsecond)
	}
}

func newPolicy(t testing.TB, opts *sash.Options, limits ...sash.Limit) *driver.Policy {
	t.Helper()
	v, err := sash.NewPolicy(opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	v, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
