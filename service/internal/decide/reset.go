package decide

import (
	"context"
	"errors"
	"fmt"

	"example.com/sash/service/internal/config"
)

// ErrNothing means that no limit counts a request, so that there is nothing to reset.
var ErrNothing = errors.New("nothing counts this request")

// Reset forgets what the subject of a request was charged with, under the algorithm of the rule that it meets
// now. Other instances that keep refusals in memory may go on refusing it for a second.
//
// Errors are config.ErrUnknownDomain, ErrNothing, sash.ErrUnavailable, and the context's.
func (d *Decider) Reset(ctx context.Context, domain string, entries []config.Entry) error {
	s := d.current.Load()
	found, err := s.config.Find(domain, entries)
	if err != nil {
		return err
	}
	limiter := s.limiters[found.Rule]
	if limiter == nil {
		return fmt.Errorf("%w: no rule with limits matches its entries", ErrNothing)
	}
	return limiter.Reset(ctx, found.Key)
}
