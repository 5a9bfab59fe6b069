package memstore

import (
	"context"

	"example.com/sash/driver"
)

var _ driver.Extender = (*Store)(nil)

// Extend implements [driver.Extender].
func (s *Store) Extend(_ context.Context, set driver.Settlement) (int64, error) {
	req := set.Request
	if !req.Policy.Algorithm.Extends() {
		return 0, driver.ErrUnsupported
	}
	hash := s.hash(req.Key)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.clock.now()
	sub := sh.find(hash, req.Key, req.Policy)
	if sub == nil || set.At-set.Delay < sub.born || now >= set.Expires() {
		return 0, nil
	}
	limits := req.Policy.Limits
	if set.Delay == 0 && !sub.log.Extend(now, set.At, req.Cost, limits) ||
		set.Delay > 0 && !sub.log.Bring(now, set.At, req.Cost, limits, sh.statuses[:len(limits)]) {
		return 0, nil
	}
	sub.hold(now, now, &req)
	sh.settled(now, sub, 0, limits)
	return now, nil
}
