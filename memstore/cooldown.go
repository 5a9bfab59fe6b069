package memstore

import (
	"context"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// cooling is the policy under which a shard finds cool-downs. Its algorithm is no limiter's, so a key's
// cool-down and its charges are different subjects.
var cooling = &driver.Policy{Algorithm: 255}

var _ driver.Cooler = (*Store)(nil)

// CoolDown implements [driver.Cooler]. A cool-down counts as a key for Options.MaxKeys,
// and is not evicted before it has ended.
func (s *Store) CoolDown(_ context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	hash := s.hash(key)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.clock.now()
	sub := sh.find(hash, key, cooling)
	if sub == nil {
		if c.Length <= 0 {
			return driver.CoolDown{}, nil
		}
		if sub = sh.add(now, hash, &driver.Request{Key: key, Policy: cooling}); sub == nil {
			return driver.CoolDown{}, ErrFull
		}
		sub.state = new(window.CoolDown)
	}
	state := sub.state.(*window.CoolDown)
	if c.Length > 0 {
		state.Begin(now, c)
	}
	at := state.At(now)
	if at.Left > 0 {
		sh.bar(sub, now+at.Left)
	}
	if sub.index < 0 {
		sh.enqueue(sub)
	}
	return at, nil
}
