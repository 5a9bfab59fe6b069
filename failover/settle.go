package failover

import (
	"context"
	"fmt"
	"time"

	"example.com/sash/driver"
)

// Settle implements [driver.Settler]. It settles a charge where it was made. Mode Open charged nothing, so there is
// nothing to settle. An unavailable store is an error in every mode; the settlement can be repeated.
func (s *Store) Settle(ctx context.Context, set driver.Settlement) error {
	switch set.Source {
	case driver.FromPolicy:
		return nil
	case driver.FromLocal:
		return s.settleLocally(ctx, set)
	}
	store, ok := s.store.(driver.Settler)
	if !ok {
		return driver.ErrUnsupported
	}
	out := ask(ctx, s.guard, s.part(set.Request), nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, store.Settle(ctx, set)
	})
	// Units that are given back stay charged in this process's share, which does not know which charge they were. The
	// modes do not matter: those of the charge may be others.
	if more := set.Units - set.Request.Cost; out.err == nil && more > 0 && s.local != nil {
		id := set.ID
		if id != "" {
			id = "settle:" + id // the call may have the same
		}
		set.Request.Cost = more
		s.local.mirror(ctx, id, set.Request)
	}
	return out.err
}

func (s *Store) settleLocally(ctx context.Context, set driver.Settlement) error {
	if s.local == nil {
		return nil // the answer came from another store
	}
	here := set
	here.Request.Policy = s.local.share(set.Request.Policy).policy
	if err := s.local.store.Settle(ctx, here); err != nil {
		return err
	}
	s.owed(set.Request.Key, set.Request.Policy).correct(set)
	return nil
}

// Reward implements [driver.Taker]. An unavailable store is an error in every mode. The units stay charged in this
// process's share.
func (s *Store) Reward(ctx context.Context, req driver.Request) (driver.Answer, error) {
	store, ok := s.store.(driver.Taker)
	if !ok {
		return driver.Answer{}, driver.ErrUnsupported
	}
	out := ask(ctx, s.guard, s.part(req), decided, func(ctx context.Context) (driver.Answer, error) { return store.Reward(ctx, req) })
	return out.value, out.err
}

// Reset implements [driver.Resetter]. It forgets the subject locally at once. The error is nil if the store has forgotten
// it too, after everything that this process admitted locally before and that the store may be working on. Only a request
// that the network delivers after its call has ended can still be charged later.
func (s *Store) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	store, ok := s.store.(driver.Resetter)
	if !ok {
		return driver.ErrUnsupported
	}
	var before []<-chan struct{}
	if s.local != nil {
		before = s.owed(key, policy).forget(key, policy)
		if err := s.local.store.Reset(ctx, key, policy); err != nil {
			return err
		}
	}
	out := ask(ctx, s.guard, s.of(key, policy), nil, func(ctx context.Context) (struct{}, error) {
		for _, over := range before {
			select {
			case <-over:
			case <-ctx.Done():
				return struct{}{}, ctx.Err()
			}
		}
		return struct{}{}, store.Reset(ctx, key, policy)
	})
	return out.err
}

// correct applies the settlement of a local charge that is waiting, once for each ID. If the charge is not waiting any
// more, or there is no room for another ID, the difference is doubtful.
func (b *backlog) correct(set driver.Settlement) {
	req, more := set.Request, set.Units-set.Request.Cost
	leaves := end(req.Policy, set.At)
	if more == 0 || leaves <= time.Now().UnixMicro() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c, f := b.find(accountOf("", req.Key, req.Policy), set.At, leaves)
	if c == nil {
		b.doubtful.Add(max(more, -more))
		return
	}
	if _, again := c.settled[set.ID]; again {
		return
	}
	if set.ID != "" {
		if b.settled.Add(1) > b.mostSettled {
			b.settled.Add(-1)
			b.doubtful.Add(max(more, -more))
			return
		}
		if c.settled == nil {
			c.settled = make(map[string]struct{})
		}
		c.settled[set.ID] = struct{}{}
	}
	c.units = max(0, c.units+more)
	if f != nil {
		f.moved += max(more, -more)
	}
}

// find returns the charge of an account that was made at an instant and leaves at another, and its flight if it has one.
// The caller holds mu.
func (b *backlog) find(of account, at, leaves int64) (*charge, *flight) {
	for f := range b.flights {
		if f.of.subject == of.subject && f.of.limits == of.limits && f.debt != nil {
			if c := f.debt.leave[leaves]; c.has(at) {
				return c, f
			}
		}
	}
	if d := b.debts[of]; d != nil {
		if c := d.leave[leaves]; c.has(at) {
			return c, nil
		}
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
	for f := range b.flights {
		if f.of.subject == name {
			f.forgotten = true
			over = append(over, f.over)
		}
	}
	return over
}

// Extend implements [driver.Extender]. Mode Open charged nothing, so there is nothing to extend. A charge that this process
// made in the store's place cannot be extended, because it may be on its way to the store: the error is
// [driver.ErrUnsupported]. An unavailable store is an error in every mode.
func (s *Store) Extend(ctx context.Context, set driver.Settlement) (int64, error) {
	switch set.Source {
	case driver.FromPolicy:
		return set.At, nil
	case driver.FromLocal:
		return 0, fmt.Errorf("%w: this process admitted the call in its place", driver.ErrUnsupported)
	}
	store, ok := s.store.(driver.Extender)
	if !ok {
		return 0, driver.ErrUnsupported
	}
	out := ask(ctx, s.guard, s.part(set.Request), nil, func(ctx context.Context) (int64, error) {
		return store.Extend(ctx, set)
	})
	if out.err == nil && out.value != 0 {
		s.mirror(ctx, "", set.Request, true, 0) // the charge that was moved stays there, too
	}
	return out.value, out.err
}

// noPolicy places a cool-down, which has no policy, in a part: a store keeps it beside the key's sliding log.
var noPolicy = new(driver.Policy)

// CoolDown implements [driver.Cooler]. A store that is unavailable is an error in every mode, and this process
// keeps no cool-downs in its place.
func (s *Store) CoolDown(ctx context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	store, ok := s.store.(driver.Cooler)
	if !ok {
		return driver.CoolDown{}, driver.ErrUnsupported
	}
	out := ask(ctx, s.guard, s.of(key, noPolicy), nil, func(ctx context.Context) (driver.CoolDown, error) {
		return store.CoolDown(ctx, key, c)
	})
	return out.value, out.err
}
