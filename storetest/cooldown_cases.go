package storetest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// coolDownCases are for stores that keep cool-downs.
var coolDownCases = []testCase{
	{
		name:    "a cool-down lasts its length",
		promise: "a cool-down lasts its length on the store's clock, for its key alone, and charges nothing",
		only:    oneAlgorithm,
		run: coolDowns(func(s *coolDownSuite) {
			s.want("k", driver.CoolDown{})
			s.begins("k", 10*time.Second, true, 10*time.Second)
			s.Advance(4 * time.Second)
			s.want("k", driver.CoolDown{Length: 10e6, Left: 6e6, Guessed: true})
			s.want("other", driver.CoolDown{})
			s.Advance(6*time.Second + time.Microsecond)
			s.want("k", driver.CoolDown{Length: 10e6, Left: -1, Guessed: true})
			l := s.limiter(sash.Every(1, time.Minute))
			s.fill(l, "k", 1)
			s.want("k", driver.CoolDown{Length: 10e6, Left: -1, Guessed: true})
		}),
	},
	{
		name:    "the cool-down that ends last holds",
		promise: "a cool-down does not begin beside one that ends as late",
		only:    oneAlgorithm,
		run: coolDowns(func(s *coolDownSuite) {
			s.begins("k", 11*time.Second, true, 11*time.Second)
			s.begins("k", 11*time.Second, false, 11*time.Second)
			s.want("k", driver.CoolDown{Length: 11e6, Left: 11e6, Guessed: true})
			s.Advance(2 * time.Second)
			s.begins("k", 20*time.Second, false, 20*time.Second)
			s.Advance(2 * time.Second)
			s.begins("k", 5*time.Second, true, 18*time.Second)
			s.want("k", driver.CoolDown{Length: 20e6, Left: 18e6})
			s.Advance(19 * time.Second)
			s.begins("k", time.Millisecond, true, time.Millisecond)
			s.want("k", driver.CoolDown{Length: 1e3, Left: 1e3, Guessed: true})
		}),
	},
	{
		name:    "a cool-down is kept after its end",
		promise: "a cool-down is known until its end is as long ago as it lasted, and 10 seconds at least",
		only:    oneAlgorithm,
		run: coolDowns(func(s *coolDownSuite) {
			for length, kept := range map[time.Duration]time.Duration{
				time.Millisecond: 10 * time.Second, 10 * time.Second: 10 * time.Second, 25 * time.Hour: 25 * time.Hour,
			} {
				key := length.String()
				s.begins(key, length, false, length)
				s.Advance(length + kept - time.Microsecond)
				s.want(key, driver.CoolDown{Length: length.Microseconds(), Left: 1 - kept.Microseconds()})
				s.Advance(time.Microsecond)
				s.want(key, driver.CoolDown{})
			}
		}),
	},
	{
		name:    "a clock that goes back does not prolong a cool-down",
		promise: "no caller waits longer than the length of the cool-down",
		only:    oneAlgorithm,
		run: coolDowns(func(s *coolDownSuite) {
			s.begins("k", 10*time.Second, false, 10*time.Second)
			s.begins("ended", time.Second, false, time.Second)
			s.Advance(5 * time.Second)
			s.Advance(-time.Hour)
			s.want("k", driver.CoolDown{Length: 10e6, Left: 10e6})
			s.want("ended", driver.CoolDown{Length: 1e6, Left: 1e6})
			s.Advance(9 * time.Second)
			s.want("k", driver.CoolDown{Length: 10e6, Left: 1e6})
			s.begins("k", 3*time.Second, true, 3*time.Second)
		}),
	},
	{
		name:    "concurrent cool-downs end with the latest",
		promise: "comparing and beginning are one atomic step",
		only:    oneAlgorithm,
		run: coolDowns(func(s *coolDownSuite) {
			random := rand.New(rand.NewPCG(1, 2))
			for round := range 10 {
				var group sync.WaitGroup
				latest := time.Duration(0)
				for range 16 {
					length := time.Duration(1+random.IntN(1000)) * time.Second
					latest = max(latest, length)
					group.Go(func() {
						got, err := s.cooler.CoolDown(context.Background(), "k", driver.CoolDown{Length: length.Microseconds()})
						if err != nil || got.Left < length.Microseconds() {
							s.Errorf("round %d: %v leaves %d µs, %v\nbroken: %s", round, length, got.Left, err, s.promise)
						}
					})
				}
				group.Wait()
				s.want("k", driver.CoolDown{Length: latest.Microseconds(), Left: latest.Microseconds()})
				s.Advance(latest)
			}
		}),
	},
}

// oneAlgorithm picks one algorithm, for cases without a limiter.
func oneAlgorithm(a driver.Algorithm) bool { return a == driver.SlidingLog }

// A coolDownSuite is a case on a store that keeps cool-downs.
type coolDownSuite struct {
	*suite
	cooler driver.Cooler
}

func coolDowns(run func(*coolDownSuite)) func(*suite) {
	return func(s *suite) {
		run(&coolDownSuite{s, power[driver.Cooler](s)})
	}
}

// begins starts a cool-down and checks what is left then.
func (s *coolDownSuite) begins(key string, length time.Duration, guessed bool, left time.Duration) {
	s.Helper()
	c, err := s.cooler.CoolDown(s.Context(), key, driver.CoolDown{Length: length.Microseconds(), Guessed: guessed})
	if err != nil {
		s.Fatalf("CoolDown(%q, %v): %v", key, length, err)
	}
	if c.Left != left.Microseconds() {
		s.broken("CoolDown(%q, %v) leaves %d µs, want %v", key, length, c.Left, left)
	}
}

// want looks at a key's cool-down.
func (s *coolDownSuite) want(key string, want driver.CoolDown) {
	s.Helper()
	c, err := s.cooler.CoolDown(s.Context(), key, driver.CoolDown{})
	if err != nil {
		s.Fatalf("CoolDown(%q): %v", key, err)
	}
	if c != want {
		s.broken("the cool-down of %q is %+v, want %+v", key, c, want)
	}
}
