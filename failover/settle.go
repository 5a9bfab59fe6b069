package failover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.com/sash/driver"
)

// Settle implements [driver.Settler]. It settles a charge where it was made. Mode Open charged nothing, so there is
// nothing to settle. An unavailable store is an error in every mode; the settlement can be repeated.
func (s *Store) Settle(ctx context.Context, sets ...driver.Settlement) error {
	if s.apart(sets) {
		return driver.ErrApart
	}
	switch sets[0].Source {
	case driver.FromPolicy:
		return nil
	case driver.FromLocal:
		var errs []error
		for _, set := range sets {
			errs = append(errs, s.settleLocally(ctx, set))
		}
		return errors.Join(errs...)
	}
	err := s.do(ctx, s.part(sets[0].Request), func(ctx context.Context) error { return s.next.Settle(ctx, sets...) })
	// Units that are given back stay charged in this process's share, which does not know which charge they were. The
	// modes do not matter: those of the charge may be others.
	for _, set := range sets {
		if more := set.Units - set.Request.Cost; err == nil && more > 0 && s.local != nil {
			id := set.ID
			if id != "" {
				id = "settle:" + id // the call may have the same
			}
			set.Request.Cost = more
			s.local.mirror(ctx, id, set.Request)
		}
	}
	return err
}

// apart reports whether charges were made in different places, or are in different parts of the store.
func (s *Store) apart(sets []driver.Settlement) bool {
	return slices.ContainsFunc(sets, func(set driver.Settlement) bool {
		return set.Source != sets[0].Source || s.part(set.Request) != s.part(sets[0].Request)
	})
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
	return returned(ctx, s.guard, s.part(req), func(ctx context.Context) (driver.Answer, error) { return s.next.Reward(ctx, req) })
}

// Reset implements [driver.Resetter]. It forgets the subject locally at once. The error is nil if the store has forgotten
// it too, after everything that this process admitted locally before and that the store may be working on. Only a request
// that the network delivers after its call has ended can still be charged later.
func (s *Store) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	var before []<-chan struct{}
	if s.local != nil {
		before = s.owed(key, policy).forget(key, policy)
		if err := s.local.store.Reset(ctx, key, policy); err != nil {
			return err
		}
	}
	return s.do(ctx, s.of(key, policy), func(ctx context.Context) error {
		for _, over := range before {
			select {
			case <-over:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return s.next.Reset(ctx, key, policy)
	})
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
	if _, again := b.settled[set.ID]; again {
		return
	}
	c, f := b.find(accountOf("", req.Key, req.Policy), set.At, leaves)
	if c == nil || set.ID != "" && !b.remember(set.ID, leaves) {
		b.doubtful.Add(max(more, -more))
		return
	}
	c.units = max(0, c.units+more)
	if f != nil {
		f.moved += max(more, -more)
	}
}

// remember notes that a settlement was applied, until its charge has left, and reports whether there was room. The caller
// holds mu.
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
func (s *Store) Extend(ctx context.Context, sets ...driver.Settlement) (int64, error) {
	if s.apart(sets) {
		return 0, driver.ErrApart
	}
	switch sets[0].Source {
	case driver.FromPolicy:
		return sets[0].At, nil
	case driver.FromLocal:
		return 0, fmt.Errorf("%w: this process admitted the call in its place", driver.ErrUnsupported)
	}
	reqs := make([]driver.Request, len(sets))
	for i := range sets {
		reqs[i] = sets[i].Request
	}
	at, err := returned(ctx, s.guard, s.part(reqs[0]), func(ctx context.Context) (int64, error) { return s.next.Extend(ctx, sets...) })
	if err == nil && at != 0 { // the charges that were moved stay there, too
		s.mirror(ctx, "", decision{reqs, make([]driver.Answer, len(reqs))})
	}
	return at, err
}

// noPolicy places a cool-down, which has no policy, in a part: a store keeps it beside the key's sliding log.
var noPolicy = new(driver.Policy)

// CoolDown implements [driver.Cooler]. A store that is unavailable is an error in every mode, and this process
// keeps no cool-downs in its place.
func (s *Store) CoolDown(ctx context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	return returned(ctx, s.guard, s.of(key, noPolicy), func(ctx context.Context) (driver.CoolDown, error) {
		return s.next.CoolDown(ctx, key, c)
	})
}

// returned is guard.do for what returns something.
func returned[T any](ctx context.Context, g *guard, b *breaker, ask func(context.Context) (T, error)) (none T, err error) {
	var value T
	err = g.do(ctx, b, func(ctx context.Context) (err error) {
		value, err = ask(ctx)
		return err
	})
	if err != nil { // the store may still be at it
		return none, err
	}
	return value, nil
}
