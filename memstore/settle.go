package memstore

import (
	"context"
	"time"

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

// An Entry is the units that were charged at one instant, or for sliding buckets within one step of the resolution, at
// the latest of their instants. One that lies ahead of the store's clock is a booking.
type Entry struct {
	At    time.Time
	Units int64
}

// Inspect returns the entries of a key's log under a policy's algorithm and resolution, the oldest first, and the store's
// clock. It is for people who debug one key. It may return entries that no longer count; it leaves out units that were
// given back. It returns nil for a key without charges, and under an algorithm that keeps no log. It copies up to
// 100,000 entries and holds the lock of the key's shard meanwhile.
func (s *Store) Inspect(key string, policy *driver.Policy) ([]Entry, time.Time) {
	sh, hash, now := s.open(key)
	defer sh.mu.Unlock()
	var entries []Entry
	if sub := sh.find(hash, key, policy); sub != nil {
		for at, units := range sub.log.Entries() {
			if units > 0 {
				entries = append(entries, Entry{time.UnixMicro(at), units})
			}
		}
	}
	return entries, time.UnixMicro(now)
}
