package failover

import (
	"context"

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
	// Units that are given back stay charged in this process's share, which does not know which charge they were.
	if more := set.Units - set.Request.Cost; out.err == nil && more > 0 {
		set.Request.Cost = more
		s.mirror(ctx, "", set.Request, true)
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

// Reset implements [driver.Resetter]. It forgets the subject locally at once. The error is nil if the store has forgotten
// it too.
func (s *Store) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	store, ok := s.store.(driver.Resetter)
	if !ok {
		return driver.ErrUnsupported
	}
	if s.local != nil {
		s.owed(key, policy).forget(key, policy)
		if err := s.local.store.Reset(ctx, key, policy); err != nil {
			return err
		}
	}
	out := ask(ctx, s.guard, s.of(key, policy), nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, store.Reset(ctx, key, policy)
	})
	return out.err
}
