package failover

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// localPowers are the powers that a local store needs, such as memstore has.
const localPowers = driver.CanAll | driver.CanID | driver.CanSettle | driver.CanForget | driver.CanTake | driver.CanBlock

type local struct {
	store     driver.Store
	instances func() int
	ledger
	ahead    atomic.Int64    // bookings that wait to be mirrored
	closed   atomic.Bool     // no more bookings are mirrored
	backlogs []backlog       // of each part
	over     context.Context // end ends it when Close does not wait any longer
	end      context.CancelFunc

	mu     sync.RWMutex
	shares map[*driver.Policy]*share // guarded by mu: at most mostShares
}

// mostShares bounds the policies whose shares are kept, because each call with limits of its own brings a new policy.
const mostShares = 1024

// A share is one process's part of a policy's limits.
type share struct {
	instances int
	units     []int64        // floor(units / instances) of each limit
	least     int64          // the smallest of them
	policy    *driver.Policy // the policy with these units, and 1 instead of 0
	forced    *driver.Policy // charges whether or not there is room
	most      int64          // the highest cost under forced
}

func newLocal(store driver.Store, instances func() int, parts int) *local {
	if instances == nil {
		instances = func() int { return 1 }
	}
	l := &local{
		store: store, instances: instances, ledger: ledger{mostAccounts: mostAccounts},
		backlogs: make([]backlog, parts), shares: make(map[*driver.Policy]*share),
	}
	l.over, l.end = context.WithCancel(context.Background())
	for i := range l.backlogs {
		l.backlogs[i] = newBacklog(&l.ledger, mostSettled/parts)
	}
	return l
}

func (l *local) share(policy *driver.Policy) *share {
	instances := max(0, l.instances())
	l.mu.RLock()
	s := l.shares[policy]
	l.mu.RUnlock()
	if s != nil && s.instances == instances {
		return s
	}
	s = divide(policy, instances)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.shares) >= mostShares {
		clear(l.shares)
	}
	l.shares[policy] = s
	return s
}

func divide(policy *driver.Policy, instances int) *share {
	s := &share{instances: instances, least: driver.MaxUnits, most: policy.MostUnits()}
	ours := *policy
	ours.Limits = slices.Clone(policy.Limits)
	for i := range ours.Limits {
		units := int64(0)
		if instances > 0 {
			units = ours.Limits[i].Units / int64(instances)
		}
		s.units = append(s.units, units)
		s.least = min(s.least, units)
		ours.Limits[i].Units = max(1, units)
	}
	s.policy, s.forced = &ours, forced(policy)
	if policy.Algorithm == driver.GCRA { // GCRA counts in fractions of a limit, not in units
		s.forced, s.most = forced(s.policy), max(1, s.least)
	}
	return s
}

// forced returns a policy that charges whether or not there is room.
func forced(policy *driver.Policy) *driver.Policy {
	forced := *policy
	forced.CountRefused, forced.Block = true, driver.Block{}
	return &forced
}

// mirror charges locally what the store charged: for charges if a mode is Local, and for corrections in any case, because the
// charge may have been made under other modes. It charges once for each ID that is not empty, and a booking after its delay.
func (s *Store) mirror(ctx context.Context, b *driver.Batch) {
	if s.local == nil {
		return
	}
	for i := range b.Ops {
		op, id := &b.Ops[i], b.Ops[i].ID
		req, delay := op.Request, op.Answer.Delay
		if corrects(op) && id != "" {
			id = "settle:" + id // the call may have the same
		}
		switch req.Cost = b.Charged(i); {
		case req.Cost <= 0, !corrects(op) && !s.modes.local():
		case delay > 0:
			s.local.mirrorLater(id, req, microseconds(delay))
		default:
			s.local.mirror(ctx, id, req)
		}
	}
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func (l *local) mirror(ctx context.Context, id string, req driver.Request) {
	s := l.share(req.Policy)
	req.Cost, req.Policy, req.Within = min(req.Cost, s.most), s.forced, 0
	// If the local store is full, the subject starts anew in mode Local.
	_ = l.do(ctx, driver.Op{Settlement: driver.Settlement{Request: req, ID: id}})
}

// decide decides within this process's share, and books within it, in order, if the local store books. A call that costs
// more than the share is refused until the store may be called again.
func (l *local) decide(ctx context.Context, ops []driver.Op, cause error, again time.Duration) error {
	shares := make([]*share, len(ops))
	asked := driver.Batch{Ops: slices.Clone(ops)}
	fits := true
	for i := range ops {
		op := &asked.Ops[i]
		shares[i] = l.share(op.Policy)
		op.Policy = shares[i].policy
		op.Cost = shares[i].need(op.Request)
		if l.store.Powers()&driver.CanBook == 0 || !op.Policy.Bookable() {
			op.Within = 0
		}
		fits = fits && op.Cost <= shares[i].least
	}
	for i := 0; !fits && i < len(ops); i++ {
		op := &asked.Ops[i]
		if op.Policy.CountRefused {
			l.mirror(ctx, op.ID, ops[i].Request)
		}
		op.Cost, op.Forced, op.Within, op.ID = 0, false, 0, "" // a peek is not remembered as the answer to the call
	}
	if err := l.store.Do(ctx, &asked); err != nil {
		return err
	}
	for i := range ops {
		answer := shares[i].restate(shares[i].need(ops[i].Request), asked.Ops[i].Answer, again)
		answer.Source, answer.Cause = driver.FromLocal, cause
		ops[i].Answer = answer
	}
	return nil
}

func (l *local) do(ctx context.Context, op driver.Op) error {
	return l.store.Do(ctx, &driver.Batch{Ops: []driver.Op{op}})
}

// need returns the units that a request needs from the share: its cost, or the most that a partial request can take.
func (s *share) need(req driver.Request) int64 {
	if req.Partial {
		return min(req.Cost, max(1, s.least))
	}
	return req.Cost
}

// restate turns the answer to a request under a share into an answer under the limits that the caller knows.
func (s *share) restate(cost int64, over driver.Answer, again time.Duration) driver.Answer {
	var statuses [driver.MaxLimits]driver.Status
	copy(statuses[:], over.Statuses())
	refusals := over.Refusals
	for i := range s.units {
		statuses[i].Remaining = min(statuses[i].Remaining, s.units[i])
		if cost > s.units[i] {
			refusals |= 1 << i
			statuses[i].Retry = again.Microseconds()
		}
	}
	answer := driver.Answer{Charged: over.Charged, Delay: over.Delay, Blocked: over.Blocked}
	answer.Set(over.At, refusals, statuses[:len(s.units)])
	return answer
}

// mostAhead is how many bookings of the store wait to be mirrored. Further ones are mirrored at once.
const mostAhead = 100_000

// mirrorLater mirrors a booking when it starts. The local store dates charges as of now, so it does not count the booking
// until then, and a settlement before that has no effect there. Nothing is mirrored after Close.
func (l *local) mirrorLater(id string, req driver.Request, delay time.Duration) {
	if l.ahead.Add(1) > mostAhead {
		delay = 0
	}
	time.AfterFunc(delay, func() {
		defer l.ahead.Add(-1)
		if !l.closed.Load() {
			safely(func() { l.mirror(context.Background(), id, req) })
		}
	})
}
