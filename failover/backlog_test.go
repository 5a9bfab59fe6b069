package failover

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

func newBacklog() *backlog { return &backlog{subjects: make(map[subject]*debt)} }

func request(t *testing.T, key string, cost int64, limits ...sash.Limit) driver.Request {
	t.Helper()
	policy, err := sash.NewPolicy(nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return driver.Request{Key: key, Policy: policy, Cost: cost}
}

func settlement(req driver.Request, at time.Time, units int64, id string) driver.Settlement {
	return driver.Settlement{Request: req, At: at.UnixMicro(), Source: driver.FromLocal, Units: units, ID: id}
}

// However long the store is away, a subject takes no more memory than its window needs.
func TestTheBacklogForgetsWhatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog()
		req := request(t, "k", 1, sash.Every(100, 50*time.Millisecond))
		ids, ends := 0, 0
		for i := range 50_000 {
			at := time.Now()
			b.add(req, at.UnixMicro())
			b.correct(settlement(req, at, 2, fmt.Sprint(i)))
			time.Sleep(100 * time.Microsecond)
			ids, ends = max(ids, len(b.settled.known)), max(ends, len(b.subjects[subjectOf("k", req.Policy)].units))
		}
		if ids > 600 || len(b.settled.leaves) != len(b.settled.known) { // 500 in a window, and a step
			t.Errorf("%d IDs were remembered at once", ids)
		}
		if ends > 3*steps {
			t.Errorf("the charges of %d instants were held", ends)
		}
	})
}

// What is settled long after it was charged joins the charges of its own time.
func TestLateSettlementsJoinTheirCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog()
		req := request(t, "k", 1, sash.PerHour(100_000))
		old := time.Now()
		time.Sleep(20 * time.Minute)
		for i := range 20_000 {
			b.add(req, time.Now().UnixMicro())
			b.correct(settlement(req, old, 2, fmt.Sprint(i)))
		}
		d := b.subjects[subjectOf("k", req.Policy)]
		if len(d.units) != 2 || d.sum() != 40_000 {
			t.Errorf("%d units at %d instants", d.sum(), len(d.units))
		}
		time.Sleep(50 * time.Minute)
		if due, ok := b.take(); !ok || due.req.Cost != 20_000 {
			t.Errorf("%d units are due when the older ones have left", due.req.Cost)
		}
	})
}

// What is due is what a limit still counts, and at most what left within the last step besides.
func TestWhatIsDueIsWhatStillCounts(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBacklog()
			limits := []sash.Limit{sash.Every(1000, time.Minute), sash.Every(500, 9*time.Second)}
			type charge struct {
				at    time.Time
				units int64
			}
			var charges []charge
			for i := range 200 {
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				if len(charges) == 0 || rng.IntN(3) > 0 {
					c := charge{time.Now(), 1 + rng.Int64N(5)}
					b.add(request(t, "k", c.units, limits...), c.at.UnixMicro())
					charges = append(charges, c)
					continue
				}
				c := &charges[rng.IntN(len(charges))]
				set := settlement(request(t, "k", c.units, limits...), c.at, rng.Int64N(10), fmt.Sprint(i))
				for range 1 + rng.IntN(2) {
					b.correct(set)
				}
				if time.Since(c.at) < time.Minute {
					c.units = set.Units
				}
			}
			var least, most int64
			for _, c := range charges {
				if age := time.Since(c.at); age < time.Minute {
					least += c.units
				} else if age > time.Minute+time.Minute/steps {
					continue
				}
				most += c.units
			}
			if due, _ := b.take(); due.req.Cost < least || due.req.Cost > most+10 {
				t.Errorf("seed %d: %d units are due, want %d to %d", seed, due.req.Cost, least, most)
			}
		})
	}
}

// Subjects whose charges have left make room for others.
func TestStaleSubjectsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog()
		fill := func(name string) (lost int64) {
			for i := range mostSubjects {
				lost += b.add(request(t, fmt.Sprint(name, i), 1, sash.PerMinute(5)), time.Now().UnixMicro())
			}
			return lost
		}
		if lost := fill("first"); lost != 0 {
			t.Errorf("%d units were lost", lost)
		}
		if lost := fill("second"); lost != mostSubjects {
			t.Errorf("%d units were lost with the backlog full of others", lost)
		}
		time.Sleep(2 * time.Minute)
		if lost := fill("third"); lost > mostSubjects/10 {
			t.Errorf("%d units were lost to subjects that owe nothing any more", lost)
		}
	})
}

// Calls that all bring other limits are added up too.
func TestManyWindowsOfASubjectAreAddedUp(t *testing.T) {
	b := newBacklog()
	for i := range 10_000 {
		b.add(request(t, "k", 1, sash.Every(5, time.Hour+time.Duration(i)*time.Second)), time.Now().UnixMicro())
	}
	due, _ := b.take()
	if len(due.d.units) > mostEnds || due.req.Cost != 10_000 {
		t.Errorf("%d units at %d instants", due.req.Cost, len(due.d.units))
	}
}

// Calls that each bring limits of their own do not fill the memory with shares.
func TestSharesAreBounded(t *testing.T) {
	l := newLocal(nil, nil)
	for i := range 3 * mostShares {
		l.share(request(t, "k", 1, sash.Every(5, time.Hour+time.Duration(i)*time.Second)).Policy)
		if len(l.shares) > mostShares {
			t.Fatalf("%d shares are remembered, at most %d", len(l.shares), mostShares)
		}
	}
}
