package decide

import (
	"context"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
)

// A Look is the state of one subject.
type Look struct {
	// Found says which rule the subject has; its Rule is nil where none does.
	Found config.Found
	// Banned is for how much longer the subject is banned; zero is not at all.
	Banned time.Duration
	// Limits are what holds it now, of its rule or of an override. None is unlimited.
	Limits []sash.Limit
	// Policy is how they are counted; nil where nothing is.
	Policy *driver.Policy
	// Result is what the store said to a call of no units; its Limits are empty where the store was not asked.
	Result sash.Result
}

// Look tells how a subject stands, without charging it, also while it is banned. Observers are not told. Errors
// are config.ErrUnknownDomain and those of sash.Limiter.Peek.
func (d *Decider) Look(ctx context.Context, domain string, entries []config.Entry) (Look, error) {
	s := d.current.Load()
	found, err := s.config.Find(domain, entries)
	if err != nil {
		return Look{}, err
	}
	h := s.hold(domain, entries, found)
	l := Look{Found: found, Banned: h.banned, Limits: h.limits, Policy: h.policy}
	if h.limiter != nil {
		l.Result, err = h.limiter.Peek(ctx, found.Key)
	}
	return l, err
}
