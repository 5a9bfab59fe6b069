package failover

import (
	"context"

	"example.com/sash/driver"
)

var _ driver.Cooler = (*Store)(nil)

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
