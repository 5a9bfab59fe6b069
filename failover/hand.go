package failover

import (
	"context"

	"example.com/sash/driver"
)

var _ driver.Hander = (*Store)(nil)

// Hand implements [driver.Hander]. While the store is unavailable the request is decided as any other, the line takes no
// turn, and the charge that it gives back stays.
func (s *Store) Hand(ctx context.Context, req driver.Request, line driver.Line) (driver.Answer, error) {
	store, ok := s.store.(driver.Hander)
	if !ok {
		return driver.Answer{}, driver.ErrUnsupported
	}
	return s.decide(ctx, req, nil, func(ctx context.Context) (driver.Answer, error) { return store.Hand(ctx, req, line) })
}
