package decide

import (
	"context"
	"errors"
	"fmt"

	"example.com/sash/service/internal/config"
)

// ErrNotLimited means that nothing counts what a request names, so that there is nothing to reset or to tell.
var ErrNotLimited = errors.New("nothing limits these entries")

// Reset forgets what the subject of a request was charged. Other instances that share the store may refuse it
// from memory for up to a second more. Errors are config.ErrUnknownDomain, ErrNotLimited, and those of
// sash.Limiter.Reset.
func (d *Decider) Reset(ctx context.Context, domain string, entries []config.Entry) error {
	s := d.current.Load()
	found, err := s.config.Find(domain, entries)
	if err != nil {
		return err
	}
	if found.Rule == nil || s.limiters[found.Rule] == nil {
		return fmt.Errorf("%w: there is nothing to forget", ErrNotLimited)
	}
	err = s.limiters[found.Rule].Reset(ctx, found.Key)
	if t := s.tried[found.Rule]; t != nil { // where it was watched, and where it counts apart
		err = errors.Join(err, t.limiter.Reset(ctx, config.CandidateKey(found.Key)), t.limiter.Reset(ctx, found.Key))
	}
	return err
}
