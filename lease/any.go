package lease

import (
	"context"

	"example.com/sash/driver"
)

var _ driver.Chooser = (*Store)(nil)

// DecideAny implements [driver.Chooser]. The store decides, under the longer windows. Units that are leased are charged
// already, so a subject seems to have less room by those.
func (s *Store) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	reqs, err := s.allBehind(reqs)
	if err != nil {
		return 0, driver.Answer{}, err
	}
	return s.Passthrough.DecideAny(ctx, reqs)
}
