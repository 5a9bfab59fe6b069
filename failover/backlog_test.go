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

// newBacklogOf returns a backlog that nothing writes.
func newBacklogOf(mostAccounts int64, mostSettled int) *backlog {
	b := newBacklog(&ledger{mostAccounts: mostAccounts}, mostSettled)
	b.write = func(chan<- struct{}) {}
	return &b
}

// take begins the write of an account, and returns what it owes.
func (b *backlog) take() (*flight, *debt, bool) {
	of, policy, _ := b.next()
	if policy == nil {
		return nil, nil, false
	}
	f := b.claim(of)
	return f, f.debt, true
}

func (b *backlog) debt(req driver.Request) *debt {
	return b.debts[accountOf("", req.Key, req.Policy)]
}

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

// What is due is what a limit still counts, and at most what left within the last step besides.
func TestWhatIsDueIsWhatStillCounts(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBacklogOf(mostAccounts, mostSettled)
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
					b.add("", request(t, "k", c.units, limits...), c.at.UnixMicro(), 0)
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
			_, d, _ := b.take()
			if due := d.units(); due < least || due > most+10 {
				t.Errorf("seed %d: %d units are due, want %d to %d", seed, due, least, most)
			}
		})
	}
}

// Accounts whose charges have left make room for others.
func TestStaleAccountsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 8
		b := newBacklogOf(most, mostSettled)
		fill := func(name string) (lost int64) {
			before := b.lost.Load()
			for i := range most / 2 {
				b.add("", request(t, fmt.Sprint(name, i), 1, sash.PerMinute(5)), time.Now().UnixMicro(), 0)
				b.add("job 7", request(t, fmt.Sprint(name, i), 1, sash.PerMinute(5)), time.Now().UnixMicro(), 0)
			}
			return b.lost.Load() - before
		}
		if lost := fill("first"); lost != 0 {
			t.Errorf("%d units were lost", lost)
		}
		if lost := fill("second"); lost != most {
			t.Errorf("%d units were lost with the backlog full of others", lost)
		}
		time.Sleep(2 * time.Minute)
		if lost := fill("third"); lost != 0 || b.accounts.Load() != most {
			t.Errorf("%d units were lost to accounts that owe nothing any more; there are %d", lost, b.accounts.Load())
		}
	})
}

// The bound is that of all parts together.
func TestPartsShareTheBound(t *testing.T) {
	a := newBacklogOf(3, 3)
	b := newBacklogOf(0, 0)
	b.ledger = a.ledger
	for i := range 2 {
		for _, b := range []*backlog{a, b} {
			b.add("", request(t, fmt.Sprint(i), 5, sash.PerMinute(5)), time.Now().UnixMicro(), 0)
		}
	}
	if a.accounts.Load() != 3 || a.lost.Load() != 5 || len(a.debts) != 2 || len(b.debts) != 1 {
		t.Errorf("%d accounts, %d and %d; %d units were lost", a.accounts.Load(), len(a.debts), len(b.debts), a.lost.Load())
	}
}

// Without room for its ID a settlement is not applied, because it could be applied again.
func TestSettlementsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklogOf(mostAccounts, 4)
		req := request(t, "k", 3, sash.PerMinute(100))
		at := time.Now()
		for range 10 {
			b.add("", req, at.UnixMicro(), 0)
		}
		for i := range 6 {
			for range 3 {
				b.correct(settlement(req, at, 1, fmt.Sprint(i)))
			}
		}
		b.correct(settlement(req, at, 2, ""))
		if units := b.debt(req).units(); units != 30-4*2-1 || b.doubtful.Load() != 2*3*2 || len(b.settled) != 4 {
			t.Errorf("%d units; %d are doubtful; %d IDs", units, b.doubtful.Load(), len(b.settled))
		}
		f, _, _ := b.take()
		b.correct(settlement(req, at, 1, "0"))
		b.putBack(f.of, b.takeBack(f))
		b.correct(settlement(req, at, 1, "0"))
		if units := b.debt(req).units(); units != 21 || len(b.settled) != 4 {
			t.Errorf("%d units after a debt was put back and a settlement repeated; %d IDs", units, len(b.settled))
		}
		time.Sleep(time.Minute) // the charges have left
		at = time.Now()
		b.add("", req, at.UnixMicro(), 0)
		if b.correct(settlement(req, at, 1, "later")); b.doubtful.Load() != 2*3*2 || len(b.settled) != 1 {
			t.Errorf("%d units are doubtful; %d IDs", b.doubtful.Load(), len(b.settled))
		}
	})
}

// A settlement finds no charge but its own: not those that were made after its own was written.
func TestASettlementOfAWrittenChargeIsDoubtful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklogOf(mostAccounts, mostSettled)
		req := request(t, "k", 3, sash.PerHour(100))
		old := time.Now()
		b.add("", req, old.UnixMicro(), 0)
		f, _, _ := b.take()
		b.takeBack(f)
		time.Sleep(time.Microsecond)
		b.add("", req, time.Now().UnixMicro(), 0)
		for _, units := range []int64{0, 3, 5} { // 3 less, the same, 2 more
			b.correct(settlement(req, old, units, fmt.Sprint(units)))
		}
		if units := b.debt(req).units(); units != 3 || b.doubtful.Load() != 5 {
			t.Errorf("%d units; %d are doubtful", units, b.doubtful.Load())
		}
	})
}

// However far the local clock runs ahead, the charges of an account are added up.
func TestManyInstantsOfAnAccountAreAddedUp(t *testing.T) {
	b := newBacklogOf(mostAccounts, mostSettled)
	for i := range 10_000 {
		b.add("", request(t, "k", 1, sash.PerHour(5)), time.Now().Add(time.Duration(i)*time.Hour).UnixMicro(), 0)
	}
	if _, d, _ := b.take(); len(d.leave) > mostEnds || d.units() != 10_000 {
		t.Errorf("%d units at %d instants", d.units(), len(d.leave))
	}
}

// Calls that each bring limits of their own do not fill the memory with shares.
func TestSharesAreBounded(t *testing.T) {
	l := newLocal(nil, nil, 1)
	for i := range 3 * mostShares {
		l.share(request(t, "k", 1, sash.Every(5, time.Hour+time.Duration(i)*time.Second)).Policy)
		if len(l.shares) > mostShares {
			t.Fatalf("%d shares are remembered, at most %d", len(l.shares), mostShares)
		}
	}
}
