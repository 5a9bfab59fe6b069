package window_test

import (
	"math/rand/v2"
	"testing"

	"example.com/sash/internal/window"
)

// spend is Take with a copy of the answer.
func spend(l *window.Leases, now int64, s *window.Spending) (a window.Held) {
	l.Take(now, s, &a)
	return a
}

// What is spent and taken out of each lease is at most what was brought, and is spent while the lease lasts, whatever the
// order of calls and wherever the clock goes. One caller at a time fetches.
func TestLeasesAreSpentOnceAndInTime(t *testing.T) {
	type brought struct {
		units, out   int64 // out: spent, or taken out
		starts, ends int64
	}
	spends, returns, setBack := 0, 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		var l window.Leases
		const longest = 1_000_000
		now := int64(1_000_000_000)
		leases := map[string]*brought{}
		var fetch, until int64 // the one that is under way
		began := map[int64]*brought{}
		takeOut := func(instant, keep int64) {
			units := l.Return(instant, keep)
			if began[instant].out += units; units < 0 || began[instant].out > began[instant].units {
				t.Fatalf("seed %d: %d units were taken out of %+v", seed, units, began[instant])
			}
			if units > 0 {
				returns++
			}
		}
		for step := range 400 {
			now += random.Int64N(longest / 16)
			if random.IntN(100) == 0 {
				now -= random.Int64N(3 * longest)
				fetch, until = 0, 0
				setBack++
			}
			switch random.IntN(4) {
			default:
				s := window.Spending{Cost: 1 + random.Int64N(5), Longest: longest, Way: random.Int64N(longest / 8), Again: random.IntN(5) == 0}
				a := spend(&l, now, &s)
				if a.Spent {
					b := leases[a.Reply]
					if b.out += s.Cost; b.out > b.units {
						t.Fatalf("seed %d: %d units were spent of %d", seed, b.out, b.units)
					}
					if now < b.starts || now >= b.ends {
						t.Fatalf("seed %d: a unit of %+v was spent at %d", seed, b, now)
					}
					spends++
				}
				if a.Fetch > 0 {
					if fetch != 0 && now < until && now >= fetch {
						t.Fatalf("seed %d: two fetches at once", seed)
					}
					if a.Fetch < s.Cost && !a.Spent {
						t.Fatalf("seed %d: a fetch for %d units, of a call that costs %d", seed, a.Fetch, s.Cost)
					}
					fetch, until = now, now+s.Patience()
				}
			case 1:
				if fetch == 0 {
					continue
				}
				reply := string(rune('a' + step))
				e := window.Fetch{Began: fetch, Longest: longest, Units: 1 + random.Int64N(100), Delay: random.Int64N(2) * random.Int64N(longest), Reply: reply, Rest: -1}
				kept := l.Bring(now, &e)
				if again := l.Bring(now, &e); again {
					t.Fatalf("seed %d: a fetch brought two leases", seed)
				}
				if kept {
					leases[reply] = &brought{units: e.Units, starts: now + e.Delay, ends: fetch + e.Delay + longest}
					began[fetch] = leases[reply]
				}
				fetch, until = 0, 0
			case 2:
				for instant := range began {
					takeOut(instant, random.Int64N(20))
					break
				}
			}
		}
		for instant := range began {
			takeOut(instant, 0)
		}
	}
	if spends < 10_000 || returns < 500 || setBack < 500 {
		t.Errorf("%d spent, %d returns, %d times the clock was set back: this test shows nothing", spends, returns, setBack)
	}
}

// After a key was forgotten, no lease on its way is kept. A clock that is set back would let a lease be spent too late: it ends.
func TestWhatEndsALease(t *testing.T) {
	s := window.Spending{Cost: 1, Longest: 1_000_000}
	bring := func(meanwhile func(*window.Leases)) (l *window.Leases, kept bool) {
		l = new(window.Leases)
		spend(l, 5_000_000, &s)
		a := spend(l, 5_000_001, &s)
		meanwhile(l)
		return l, l.Bring(5_000_100, &window.Fetch{Began: a.At, Longest: s.Longest, Units: 10, Rest: -1})
	}
	if _, kept := bring((*window.Leases).Forget); kept {
		t.Error("the lease is kept of a key that was forgotten")
	}
	l, kept := bring(func(*window.Leases) {})
	if a := spend(l, 5_000_200, &s); !kept || !a.Spent {
		t.Fatalf("%+v", a)
	}
	spend(l, 4_000_000, &s)
	if a := spend(l, 5_000_300, &s); a.Spent {
		t.Errorf("%+v", a)
	}
}
