package failover

import (
	"context"
	"fmt"

	"example.com/sash/driver"
)

var _ driver.Extender = (*Store)(nil)

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
