package memstore

import (
	"context"

	"example.com/sash/driver"
)

// Settle implements [driver.Settler].
func (s *Store) Settle(_ context.Context, set driver.Settlement) error {
	req := &set.Request
	sh, hash, now := s.open(req.Key)
	defer sh.mu.Unlock()
	if sub := sh.chargedTo(now, hash, &set); sub != nil && sub.first(now, &set) {
		more := set.Units - req.Cost
		sub.state.Settle(now, set.At, more, req.Policy.Limits)
		sh.settled(now, sub, more, req.Policy.Limits)
	}
	return nil
}

// chargedTo returns the subject that still holds the charge of a settlement, or nil.
func (sh *shard) chargedTo(now int64, hash uint64, set *driver.Settlement) *subject {
	sub := sh.find(hash, set.Request.Key, set.Request.Policy)
	if sub == nil || set.At-set.Delay < sub.born || now >= set.Expires() {
		return nil
	}
	return sub
}

// Extend implements [driver.Extender].
func (s *Store) Extend(_ context.Context, set driver.Settlement) (int64, error) {
	req := set.Request
	if !req.Policy.Algorithm.Extends() {
		return 0, driver.ErrUnsupported
	}
	sh, hash, now := s.open(req.Key)
	defer sh.mu.Unlock()
	sub, limits := sh.chargedTo(now, hash, &set), req.Policy.Limits
	if sub == nil || set.Delay == 0 && !sub.log.Extend(now, set.At, req.Cost, limits) ||
		set.Delay > 0 && !sub.log.Bring(now, set.At, req.Cost, limits, sh.statuses[:len(limits)]) {
		return 0, nil
	}
	sub.hold(now, now, &req)
	sh.settled(now, sub, 0, limits)
	return now, nil
}

// Reward implements [driver.Taker].
func (s *Store) Reward(_ context.Context, req driver.Request) (answer driver.Answer, _ error) {
	sh, hash, now := s.open(req.Key)
	defer sh.mu.Unlock()
	if sub := sh.find(hash, req.Key, req.Policy); sub != nil {
		answer.Charged = sub.state.Reward(now, req.Cost, req.Policy.Limits)
		sh.settled(now, sub, -answer.Charged, req.Policy.Limits)
	}
	req.Cost = 0
	statuses := sh.statuses[:len(req.Policy.Limits)]
	refusals := sh.look(now, hash, &req, statuses)
	answer.Set(now, refusals, statuses)
	return answer, nil
}

// Reset implements [driver.Resetter].
func (s *Store) Reset(_ context.Context, key string, policy *driver.Policy) error {
	sh, hash, now := s.open(key)
	defer sh.mu.Unlock()
	if sub := sh.find(hash, key, policy); sub != nil {
		sh.clock.close(now)
		sh.drop(sub)
	}
	return nil
}
