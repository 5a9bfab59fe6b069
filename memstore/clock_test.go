package memstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

func TestTheClockShowsTheDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil, time.Now())
		for _, passed := range []time.Duration{0, time.Microsecond, 999 * time.Millisecond, time.Second, 30 * time.Hour} {
			time.Sleep(passed)
			if got, want := c.now(), time.Now().UnixMicro(); got != want {
				t.Errorf("after %v it shows %d, want %d", passed, got, want)
			}
		}
	})
}

func TestADateThatWasSetIsFollowed(t *testing.T) {
	const hour = int64(time.Hour / time.Microsecond)
	for _, c := range []struct {
		name       string
		step, want int64 // how far the date is from what it would be, and how much of that is followed
	}{
		{"forward", hour, hour},
		{"back", -hour, -hour},
		{"by little", 30_000, 30_000},
		{"a goroutine was held up before it looked at the date", 19_000, 0},
		{"a goroutine was held up after it looked at the date", -19_000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := newClock(nil, time.Now())
				time.Sleep(5 * time.Second)
				clock.follow(time.Now().UnixMicro()+c.step, 5*time.Second)
				time.Sleep(lookEvery / 2)
				if got := clock.now() - time.Now().UnixMicro(); got != c.want {
					t.Errorf("the clock is %d ahead, want %d", got, c.want)
				}
			})
		})
	}
}

// A clock that is a millisecond or less behind what it has shown stands there, and one that is farther behind was set back.
func TestAClockThatTremblesStands(t *testing.T) {
	shows := time.UnixMicro(1_700_000_000_000_000)
	clock := newClock(func() time.Time { return shows }, shows)
	for _, step := range []struct{ shows, want int64 }{{0, 0}, {-1000, 0}, {-400, 0}, {1, 1}, {-999, 1}, {-1000, -1000}, {-1001, -1000}, {-5000, -5000}, {0, 0}} {
		shows = time.UnixMicro(1_700_000_000_000_000 + step.shows)
		if got := clock.now() - 1_700_000_000_000_000; got != step.want {
			t.Errorf("at %d it is %d, want %d", step.shows, got, step.want)
		}
	}
}

// A subject can be removed and charged again within a microsecond, any number of times. What was charged before cannot
// be settled any more.
func TestAnInstantDoesNotComeAgainAfterARemoval(t *testing.T) {
	for _, removal := range []struct {
		name   string
		remove func(*testing.T, *sash.Limiter)
	}{
		{"reset", func(t *testing.T, l *sash.Limiter) {
			Check(t, l.Reset(t.Context(), "k"))
		}},
		{"eviction", func(t *testing.T, l *sash.Limiter) {
			_ = Must(l.Reserve(t.Context(), "another", 1, nil))(t)
		}},
	} {
		for _, a := range sash.Algorithms() {
			for _, times := range []int{1, 2, 3, 100} {
				t.Run(fmt.Sprint(removal.name, ", ", a, ", ", times, " times"), func(t *testing.T) {
					at := time.UnixMicro(1_700_000_000_000_000)
					s := New(&Options{Now: func() time.Time { return at }, MaxBytes: 1})
					opts := &sash.Options{Algorithm: a}
					if a == sash.SlidingBuckets {
						opts.Resolution = time.Second
					}
					l := Must(sash.New(s, opts, sash.PerHour(10)))(t)
					reserve := func() *sash.Reservation {
						r, err := l.Reserve(t.Context(), "k", 4, nil)
						if err != nil || !r.Allowed() {
							t.Fatal(r, err)
						}
						return r
					}
					var before []*sash.Reservation
					for range times {
						before = append(before, reserve())
						removal.remove(t, l)
					}
					reserve()
					for i, r := range before {
						Check(t, r.Cancel(t.Context()))
						if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 6 {
							t.Fatalf("charge %d was cancelled: %d of 10 remain, and 4 were charged since (%v)", i, res.Remaining, err)
						}
					}
				})
			}
		}
	}
}

// Keys that have the same hash are apart: each is answered as if it were alone, whichever of them goes.
func TestKeysWithTheSameHashAreApart(t *testing.T) {
	const hash, keys = 7, 6
	var policies []*driver.Policy
	for _, opts := range []sash.Options{
		{}, {Algorithm: sash.GCRA}, {Algorithm: sash.SlidingBuckets, Resolution: 10 * time.Microsecond},
		{Algorithm: sash.SlidingBuckets, Resolution: 20 * time.Microsecond},
	} {
		policies = append(policies, Must(sash.NewPolicy(&opts, sash.Every(3, time.Millisecond)))(t))
	}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		chained := &New(nil).shards[0]
		alone := make(map[id]*shard)
		now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC).UnixMicro()
		for range 400 {
			now += random.Int64N(200)
			req := driver.Request{Key: fmt.Sprint(random.IntN(keys)), Cost: random.Int64N(4), Policy: policies[random.IntN(len(policies))]}
			of := id{req.Key, req.Policy.Algorithm, req.Policy.Resolution}
			if alone[of] == nil {
				alone[of] = &New(nil).shards[0]
			}
			if random.IntN(8) == 0 {
				for _, sh := range []*shard{chained, alone[of]} {
					if sub := sh.find(hash, req.Key, req.Policy); sub != nil {
						sh.drop(sub)
					}
				}
			}
			var got, want driver.Answer
			chained.decide(now, hash, &req, &got)
			alone[of].decide(now, hash, &req, &want)
			if got != want {
				t.Fatalf("seed %d, key %s, cost %d: %+v, alone %+v", seed, req.Key, req.Cost, got, want)
			}
		}
		held := 0
		for sub := chained.subjects[hash]; sub != nil; sub = sub.next {
			held++
		}
		if held != chained.held() {
			t.Fatalf("seed %d: %d are chained, %d in the queue", seed, held, chained.held())
		}
	}
}

// Must returns a function that returns the value, or fails the test at once after an error: Must(f())(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Check(t, err)
		return value
	}
}

// Check fails the test at once after an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// KeyBytes are those of a subject of a key of up to 16 bytes, and CoolDownBytes those of a cool-down beside.
var KeyBytes, CoolDownBytes = int64(leastBytes("k")), int64(besideBytes)

// Swept drops every expired key and returns the counts.
func (s *Store) Swept() Stats {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.sweep(sh.clock.now(), sh.held())
		sh.mu.Unlock()
	}
	return s.Stats()
}
