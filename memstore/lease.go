package memstore

import (
	"context"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// leasing is the policy under which a shard finds leases. Its algorithm is no limiter's, so a key's leases and its charges
// are different subjects.
var leasing = &driver.Policy{Algorithm: 254}

var _ driver.Holder = (*Store)(nil)

// Spend implements [driver.Holder]. Leases of a key count as a key for Options.MaxKeys. If
// they are evicted their units are lost. The only error is [ErrFull].
func (s *Store) Spend(_ context.Context, sp driver.Spending) (held driver.Held, err error) {
	err = s.leases(sp.Key, true, func(now int64, l *window.Leases) { held = l.Spend(now, &sp) })
	return held, err
}

// Bring implements [driver.Holder]. The only error is [ErrFull].
func (s *Store) Bring(_ context.Context, e driver.Errand) (kept bool, err error) {
	err = s.leases(e.Key, true, func(now int64, l *window.Leases) { kept = l.Bring(now, &e) })
	return kept, err
}

// Return implements [driver.Holder].
func (s *Store) Return(_ context.Context, key string, began, keep int64) (units int64, err error) {
	err = s.leases(key, false, func(_ int64, l *window.Leases) { units = l.Return(began, keep) })
	return units, err
}

// Forget implements [driver.Holder].
func (s *Store) Forget(_ context.Context, key string) error {
	return s.leases(key, false, func(_ int64, l *window.Leases) { l.Forget() })
}

// leases calls do with the leases of a key and the clock, under its lock. If there are none it creates them or does nothing.
func (s *Store) leases(key string, create bool, do func(now int64, l *window.Leases)) error {
	hash := s.hash(key)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.clock.now()
	sub := sh.find(hash, key, leasing)
	if sub == nil {
		if !create {
			return nil
		}
		if sub = sh.add(now, hash, &driver.Request{Key: key, Policy: leasing}); sub == nil {
			return ErrFull
		}
		sub.state = new(window.Leases)
	}
	l := sub.state.(*window.Leases)
	do(now, l)
	if sub.index < 0 {
		sh.enqueue(sub)
	}
	return nil
}
