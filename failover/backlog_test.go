package failover

import (
	"fmt"
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
func (b *backlog) take() *debt {
	of, _, _ := b.next()
	return b.claim(of)
}

func (b *backlog) debt(req driver.Request) *debt {
	return b.debts[accountOf("", req.Key, req.Policy)]
}

func request(t *testing.T, key string, cost int64, limits ...sash.Limit) driver.Request {
	t.Helper()
	policy := Must(sash.NewPolicy(nil, limits...))(t)
	return driver.Request{Key: key, Policy: policy, Cost: cost}
}

func settlement(req driver.Request, at time.Time, units int64, id string) driver.Settlement {
	return driver.Settlement{Request: req, At: at.UnixMicro(), Source: driver.FromLocal, Units: units, ID: id}
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

// Without room for its ID a settlement is not applied, because it could be applied again.
func TestSettlementsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklogOf(mostAccounts, 4)
		req := request(t, "k", 3, sash.PerMinute(100))
		at := time.Now()
		for range 10 {
			b.add("", req, at.UnixMicro(), 0)
		}
		b.correct(settlement(req, at, 3, "as estimated")) // takes no room
		for i := range 6 {
			for range 3 {
				b.correct(settlement(req, at, 1, fmt.Sprint(i)))
			}
		}
		b.correct(settlement(req, at, 2, ""))
		if units := b.debt(req).units(); units != 30-4*2-1 || b.doubtful.Load() != 2*3*2 || len(b.settled) != 4 {
			t.Errorf("%d units; %d are doubtful; %d IDs", units, b.doubtful.Load(), len(b.settled))
		}
		d := b.take()
		b.correct(settlement(req, at, 1, "0"))
		b.land(d, uncharged)
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

// However far the local clock runs ahead, the charges of an account are added up.
func TestManyInstantsOfAnAccountAreAddedUp(t *testing.T) {
	b := newBacklogOf(mostAccounts, mostSettled)
	for i := range 10_000 {
		b.add("", request(t, "k", 1, sash.PerHour(5)), time.Now().Add(time.Duration(i)*time.Hour).UnixMicro(), 0)
	}
	if d := b.take(); len(d.leave) > mostEnds || d.units() != 10_000 {
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
