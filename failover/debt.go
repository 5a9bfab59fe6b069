package failover

import (
	"context"
	"maps"
	"slices"
	"time"

	"example.com/sash/driver"
)

func (s *Store) settleLocally(ctx context.Context, set driver.Settlement) error {
	if s.local == nil {
		return nil // the charge was made by another store
	}
	here := set
	here.Policy = s.local.share(set.Policy).policy
	if err := s.local.do(ctx, driver.Op{Kind: driver.Settle, Settlement: here}); err != nil {
		return err
	}
	s.owed(set.Key, set.Policy).correct(set)
	return nil
}

// forget forgets the subject locally at once, and then in the store, after every local admission that the store may be working
// on. The error is nil if both have forgotten it. Only a request that the network delivers after its call has ended can still be
// charged later.
func (s *Store) forget(ctx context.Context, b *driver.Batch) error {
	var before []<-chan struct{}
	if op := b.Ops[0]; s.local != nil {
		before = s.owed(op.Key, op.Policy).forget(op.Key, op.Policy)
		if err := s.local.do(ctx, op); err != nil {
			return err
		}
	}
	return s.pass(ctx, b, before)
}

// correct applies a settlement to a local charge that waits, once for each ID. If the charge does not wait any more, or
// there is no room for another ID, the difference is doubtful.
func (b *backlog) correct(set driver.Settlement) {
	req, more := set.Request, set.Units-set.Cost
	leaves := end(req.Policy, set.At)
	if more == 0 || leaves <= time.Now().UnixMicro() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.settled[set.ID]; again {
		return
	}
	c, d := b.find(accountOf("", req.Key, req.Policy), set.At, leaves)
	if c == nil || set.ID != "" && !b.remember(set.ID, leaves) {
		b.doubtful.Add(max(more, -more))
		return
	}
	c.units = max(0, c.units+more)
	d.moved += max(more, -more) // counts only if the debt has been sent
}

// remember keeps the ID of an applied settlement until its charge has left, and reports whether there was room. The caller holds mu.
func (b *backlog) remember(id string, leaves int64) bool {
	if now := time.Now(); len(b.settled) >= b.mostSettled && now.Sub(b.swept) > time.Second {
		b.swept = now
		maps.DeleteFunc(b.settled, func(_ string, leaves int64) bool { return leaves <= now.UnixMicro() })
	}
	if len(b.settled) >= b.mostSettled {
		return false
	}
	b.settled[id] = leaves
	return true
}

// find returns the charge that an account made at one instant and that leaves at another, with its debt. The caller holds mu.
func (b *backlog) find(of account, at, leaves int64) (*charge, *debt) {
	for d := range b.sent {
		if c := d.leave[leaves]; d.of.subject == of.subject && d.of.limits == of.limits && c.has(at) {
			return c, d
		}
	}
	if d := b.debts[of]; d != nil && d.leave[leaves].has(at) {
		return d.leave[leaves], d
	}
	return nil, nil
}

// forget drops a subject's debts under all limits and IDs. It returns a channel for each debt in sent, closed when that is over.
func (b *backlog) forget(key string, policy *driver.Policy) (over []<-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := subjectOf(key, policy)
	for of := range b.debts {
		if of.subject == name {
			b.remove(of)
		}
	}
	for d := range b.sent {
		if d.of.subject == name {
			d.forgotten = true
			over = append(over, d.over)
		}
	}
	return over
}

const (
	steps    = 8   // parts of the longest window; charges that leave in the same part are added up
	mostEnds = 512 // ends of a debt; only bookings and a local clock that jumps or runs ahead need more than a few
)

// A debt is the local charges of one account. Settlements find a charge by the instant in microseconds at which it leaves.
type debt struct {
	of     account
	policy *driver.Policy // of the charges
	leave  map[int64]*charge
	began  int64 // when the account's ID was first sent to the store; 0 is never

	// Of a debt that was sent, guarded by the backlog's mu.
	id        string        // the ID with which it was sent
	cost      int64         // the units that the store may charge
	over      chan struct{} // closed when the store cannot charge them any more
	moved     int64         // the units by which settlements changed it meanwhile
	forgotten bool          // by Reset
}

// newDebt returns the debt of a call that was charged locally at an instant, which lies a delay ahead, both in microseconds.
func newDebt(id string, req driver.Request, at, delay int64) *debt {
	c := &charge{units: req.Cost, first: at, last: at}
	if delay > 0 {
		c.starts = time.Now().Add(microseconds(delay))
	}
	return &debt{of: accountOf(id, req.Key, req.Policy), policy: req.Policy, leave: map[int64]*charge{end(req.Policy, at): c}}
}

type charge struct {
	units  int64
	starts time.Time // when the first of its calls starts, on a clock that does not jump; zero if it has started
	first  int64     // the instant of its first call
	last   int64     // the instant of its last call
}

// has reports whether a charge made at an instant can be part of this one. A nil charge has none.
func (c *charge) has(at int64) bool { return c != nil && c.first <= at && at <= c.last }

// end returns the instant from which no limit counts a charge any more. For sliding windows it is rounded up to an eighth
// of the longest window; the end of a calendar period is exact.
func end(policy *driver.Policy, at int64) (last int64) {
	step := max(1, policy.Longest()/steps)
	for _, w := range policy.Limits {
		_, stop := w.Cut(at)
		if w.Period == 0 {
			stop = (at + w.Window + step - 1) / step * step
		}
		last = max(last, stop)
	}
	return last
}

func (d *debt) add(c *charge, end int64) {
	other, joins := d.leave[end]
	if !joins && len(d.leave) >= mostEnds { // it joins the last, and both leave at the later instant
		last := slices.Max(slices.Collect(maps.Keys(d.leave)))
		other = d.leave[last]
		delete(d.leave, last)
		end = max(end, last)
	}
	if other != nil {
		starts := c.starts
		if other.starts.Before(starts) {
			starts = other.starts
		}
		c = &charge{c.units + other.units, starts, min(c.first, other.first), max(c.last, other.last)}
	}
	d.leave[end] = c
}

func (d *debt) drop() {
	now := time.Now().UnixMicro()
	maps.DeleteFunc(d.leave, func(end int64, _ *charge) bool { return end <= now })
}

// due returns the time until the first call with owed units starts, and whether the debt owes any units.
func (d *debt) due() (in time.Duration, owes bool) {
	for _, c := range d.leave {
		if ahead := time.Until(c.starts); c.units > 0 && (!owes || ahead < in) {
			in, owes = ahead, true
		}
	}
	return in, owes
}

// take removes the charges of calls that have started, or all, and returns them.
func (d *debt) take(all bool) *debt {
	taken := &debt{of: d.of, policy: d.policy, leave: make(map[int64]*charge), began: d.began}
	for end, c := range d.leave {
		if all || time.Until(c.starts) <= 0 {
			taken.leave[end] = c
			delete(d.leave, end)
		}
	}
	return taken
}

func (d *debt) units() (n int64) {
	for _, c := range d.leave {
		n += c.units
	}
	return n
}
