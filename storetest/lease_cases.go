package storetest

import (
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// some is any number of units that a holder may send a caller for: the least is twice the cost.
const some = -1

// leaseCases are for stores that hold leases.
var leaseCases = []testCase{
	{"leases: one caller is sent for a lease, before it is needed",
		"a key with demand has one errand at a time; the next begins before the lease is used up",
		oneAlgorithm, leases(func(s *leaseSuite) {
			s.want("k", 1, driver.Held{Alone: true})
			errand := s.want("k", 1, driver.Held{Errand: some, Rest: -1})
			s.want("k", 2, driver.Held{Wait: 40_000})
			s.Advance(38 * time.Millisecond)
			s.again("k", 2, driver.Held{Wait: 5000})
			s.Advance(62 * time.Millisecond)
			s.wantBrought(driver.Errand{Began: errand, Units: 10, Rest: 50, Note: "first"}, true)
			errands := 0
			for left := int64(9); left >= 0; left-- {
				h := s.spend(1)
				if !h.Spent || h.Left != left || h.Note != "first" || h.Errand > 0 && h.Rest != 50 {
					s.broken("a call gets %+v, want %d left", h, left)
				}
				if h.Errand > 0 {
					errands++
				}
			}
			if errands != 1 {
				s.broken("%d callers were sent while a lease was spent", errands)
			}
			s.want("other", 1, driver.Held{Alone: true})
		})},
	{"leases: a lease is spent from its start to its end",
		"a lease starts the home's delay and a 1024th of that after it was brought, and ends a longest lease and the delay, less a 1024th, after its errand began",
		oneAlgorithm, leases(func(s *leaseSuite) {
			began := s.fetch(driver.Errand{Units: 10, Delay: 70_000, Note: "late"}, 30*time.Millisecond)
			const starts = 70_000 + 69 // a 1024th, rounded up
			s.want("k", 1, driver.Held{Refused: starts, Note: "late"})
			s.Advance((starts - 1) * time.Microsecond)
			s.want("k", 1, driver.Held{Refused: 1, Note: "late", Noted: starts - 1})
			s.Advance(time.Microsecond)
			s.want("k", 1, driver.Held{Spent: true, Left: 9, Note: "late", Noted: starts})
			ends := began + 70_000 + s.longest - 1045
			s.Advance(time.Duration(ends-s.Now().UnixMicro()-1) * time.Microsecond)
			s.wantSpent(true)
			s.Advance(time.Microsecond)
			s.wantSpent(false)
		})},
	{"leases: the lease that ends first is spent first",
		"of the leases with enough units the one that ends first is spent",
		oneAlgorithm, leases(func(s *leaseSuite) {
			s.fetch(driver.Errand{Units: 4, Note: "first"}, 0)
			s.Advance(930 * time.Millisecond)
			errand := s.spend(1).At // too little is left when it ends
			s.wantBrought(driver.Errand{Began: errand, Units: 9, Note: "second"}, true)
			s.want("k", 2, driver.Held{Spent: true, Left: 1, Note: "first", Noted: 930_000})
			s.want("k", 2, driver.Held{Spent: true, Left: 7, Note: "second"})
			s.wantBrought(driver.Errand{Began: errand, Units: 9, Note: "again"}, false)
			s.want("k", 1, driver.Held{Spent: true, Note: "first", Noted: 930_000})
		})},
	{"leases: a refusal by the home holds for all",
		"while the home refuses a cost, nobody asks it for as much; a lease ends the refusal",
		oneAlgorithm, leases(func(s *leaseSuite) {
			s.want("k", 1, driver.Held{Alone: true})
			s.want("k", 3, driver.Held{Alone: true}) // too little demand for a lease
			s.wantBrought(driver.Errand{Refused: 50_000, RefusedCost: 3, Note: "no"}, false)
			s.want("k", 3, driver.Held{Refused: 50_000, Note: "no"})
			s.Advance(20 * time.Millisecond)
			s.want("k", 4, driver.Held{Refused: 30_000, Note: "no", Noted: 20_000})
			errand := s.want("k", 2, driver.Held{Errand: some}) // it may fit
			s.wantBrought(driver.Errand{Began: errand, Units: 5, Note: "yes"}, true)
			s.want("k", 3, driver.Held{Spent: true, Left: 2, Note: "yes"})
		})},
	{"leases: an errand that failed, and one that does not end",
		"after a failure nobody goes before its time; an errand that takes too long leaves the way to another caller",
		oneAlgorithm, leases(func(s *leaseSuite) {
			s.want("k", 1, driver.Held{Alone: true})
			errand := s.want("k", 1, driver.Held{Errand: some, Rest: -1})
			s.wantBrought(driver.Errand{Began: errand, Failed: 80_000, Rest: -1}, false)
			s.want("k", 1, driver.Held{Down: true, Wait: 80_000})
			s.Advance(80 * time.Millisecond)
			slow := s.want("k", 1, driver.Held{Errand: some, Rest: -1})
			s.Advance(160*time.Millisecond - time.Microsecond) // four ways
			s.again("k", 1, driver.Held{Wait: 5000})
			s.Advance(time.Microsecond)
			s.want("k", 1, driver.Held{Errand: some, Rest: -1})
			s.wantBrought(driver.Errand{Began: slow, Units: 5}, false)
			s.again("k", 1, driver.Held{Wait: 40_000})
		})},
	{"leases: units are taken out, and keys are forgotten",
		"what is returned or forgotten is not spent, nor kept when it is brought afterwards",
		oneAlgorithm, leases(func(s *leaseSuite) {
			began := s.fetch(driver.Errand{Units: 10, Note: "a"}, 0)
			s.returns(began+1, 0, 0)
			s.returns(began, 4, 6)
			s.returns(began, 4, 0)
			s.wantSpent(true)
			s.returns(began, 0, 3)
			s.wantSpent(false)
			s.Advance(5 * time.Second)
			s.fetch(driver.Errand{Units: 10}, 0)
			s.Advance(990 * time.Millisecond)
			errand := s.spend(1).At
			if err := s.holder.Forget(s.Context(), "k"); err != nil {
				s.Fatal(err)
			}
			s.wantBrought(driver.Errand{Began: errand, Units: 5}, false)
			s.want("k", 1, driver.Held{Alone: true})
		})},
	{"leases: a clock that goes back ends all leases",
		"no lease is spent later than it may be, if the clock goes back to before the demand was counted",
		oneAlgorithm, leases(func(s *leaseSuite) {
			s.fetch(driver.Errand{Units: 10}, 0)
			s.Advance(-time.Second)
			s.want("k", 1, driver.Held{Alone: true})
			s.Advance(time.Second)
			s.wantSpent(false)
		})},
	{"leases: at most four, with long notes and large numbers",
		"a key holds MaxLeases leases with notes of MaxNote bytes; no further one is kept while none has ended",
		oneAlgorithm, leases(func(s *leaseSuite) {
			note := strings.Repeat("\x00\xff", driver.MaxNote/2)
			s.spend(driver.MaxUnits)
			for i := range driver.MaxLeases + 1 {
				s.Advance(time.Microsecond)
				h := s.spend(driver.MaxUnits / 2)
				if h.Errand != driver.MaxUnits {
					s.broken("errand %d is for %d units", i, h.Errand)
				}
				s.wantBrought(driver.Errand{Began: h.At, Units: 1, Note: note, Rest: driver.MaxUnits}, i < driver.MaxLeases)
			}
			for i := range driver.MaxLeases {
				if h := s.spend(1); !h.Spent || h.Left != 0 || h.Note != note || h.Noted != int64(driver.MaxLeases-i) {
					s.broken("from lease %d a call gets %+v", i, h)
				}
			}
		})},
	{"leases: beside the charges of a key",
		"leases and charges of a key do not touch each other",
		oneAlgorithm, leases(func(s *leaseSuite) {
			s.fetch(driver.Errand{Units: 2}, 0)
			l := s.limiter(sash.Every(3, time.Minute))
			s.fill(l, "k", 2)
			if res := s.allow(l, "k", 2); res.Allowed || res.Remaining != 1 {
				s.broken("2 of 3 units are charged and a call of 2 gets %+v", res)
			}
			s.wantSpent(true)
			s.wantSpent(true)
			if err := s.holder.Forget(s.Context(), "k"); err != nil {
				s.Fatal(err)
			}
			if res := s.peek(l, "k"); res.Remaining != 1 {
				s.broken("after the leases are forgotten %d units remain", res.Remaining)
			}
		})},
}

// A leaseSuite is a case on a store that holds leases, of a second at most, which take 40 ms to fetch.
type leaseSuite struct {
	*suite
	holder  driver.Holder
	longest int64
}

func leases(run func(*leaseSuite)) func(*suite) {
	return func(s *suite) { run(&leaseSuite{s, power[driver.Holder](s), 1_000_000}) }
}

func (s *leaseSuite) spending(key string, cost int64) driver.Spending {
	return driver.Spending{Key: key, Cost: cost, Longest: s.longest, Way: 40_000}
}

func (s *leaseSuite) ask(sp driver.Spending) driver.Held {
	s.Helper()
	h, err := s.holder.Spend(s.Context(), sp)
	if err != nil {
		s.Fatalf("Spend(%+v): %v", sp, err)
	}
	if now := s.Now().UnixMicro(); h.At != now {
		s.broken("Spend(%+v) is at %d, want %d", sp, h.At, now)
	}
	return h
}

func (s *leaseSuite) spend(cost int64) driver.Held {
	s.Helper()
	return s.ask(s.spending("k", cost))
}

// want spends, and returns the instant.
func (s *leaseSuite) want(key string, cost int64, want driver.Held) int64 {
	s.Helper()
	return s.compare(s.spending(key, cost), want)
}

// again is want for a call that has asked before.
func (s *leaseSuite) again(key string, cost int64, want driver.Held) {
	s.Helper()
	sp := s.spending(key, cost)
	sp.Again = true
	s.compare(sp, want)
}

func (s *leaseSuite) compare(sp driver.Spending, want driver.Held) int64 {
	s.Helper()
	got := s.ask(sp)
	at, fits := got.At, true
	switch {
	case want.Errand == some:
		fits, want.Errand = got.Errand >= 2*sp.Cost && got.Errand <= driver.MaxUnits, got.Errand
	case want.Spent: // it may be sent on an errand, too
		got.Errand, got.Rest = 0, 0
	}
	if want.At = at; !fits || got != want {
		s.broken("Spend(%+v) is %+v, want %+v", sp, got, want)
	}
	return at
}

// wantSpent spends a unit.
func (s *leaseSuite) wantSpent(want bool) {
	s.Helper()
	if h := s.spend(1); h.Spent != want {
		s.broken("a unit is spent: %v, want %v; %+v", h.Spent, want, h)
	}
}

func (s *leaseSuite) wantBrought(e driver.Errand, want bool) {
	s.Helper()
	e.Key, e.Longest = "k", s.longest
	kept, err := s.holder.Bring(s.Context(), e)
	if err != nil {
		s.Fatalf("Bring(%+v): %v", e, err)
	}
	if kept != want {
		s.broken("a lease is kept: %v, want %v; %+v", kept, want, e)
	}
}

// fetch makes demand for a few units and brings a lease, which takes so long. It returns when the errand began.
func (s *leaseSuite) fetch(e driver.Errand, takes time.Duration) int64 {
	s.Helper()
	for range 2 {
		h := s.spend(1)
		if h.Errand == 0 {
			continue
		}
		s.Advance(takes)
		e.Began = h.At
		s.wantBrought(e, true)
		return h.At
	}
	s.broken("two calls are sent on no errand")
	return 0
}

func (s *leaseSuite) returns(began, keep, want int64) {
	s.Helper()
	if n, err := s.holder.Return(s.Context(), "k", began, keep); n != want || err != nil {
		s.broken("%d units above %d are returned, %v, want %d", n, keep, err, want)
	}
}
