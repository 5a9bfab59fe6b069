package failover

import (
	"context"
	"maps"
	"time"

	"example.com/sash/driver"
)

func (s *Store) settleLocally(ctx context.Context, set driver.Settlement) error {
	if s.local == nil {
		return nil // the answer came from another store
	}
	here := set
	here.Policy = s.local.share(set.Policy).policy
	if err := s.local.do(ctx, driver.Op{Kind: driver.Settle, Settlement: here}); err != nil {
		return err
	}
	s.owed(set.Key, set.Policy).correct(set)
	return nil
}

// forget forgets the subject locally at once. The error is nil if the store has forgotten it too, after everything that this
// process admitted locally before and that the store may be working on. Only a request that the network delivers after its call
// has ended can still be charged later.
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

// correct applies the settlement of a local charge that is waiting, once for each ID. If the charge is not waiting any
// more, or there is no room for another ID, the difference is doubtful.
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
	d.moved += max(more, -more) // counts if it has been sent
}

// remember notes that a settlement was applied, until its charge has left, and reports whether there was room. The caller holds mu.
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

// find returns the charge of an account that was made at an instant and leaves at another, and its debt. The caller holds mu.
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

// forget drops a subject under all limits, and the calls on it that have an ID. It returns channels that are closed when
// the store cannot charge any of that any more.
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
