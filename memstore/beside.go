package memstore

import (
	"context"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// A beside is what a shard keeps of a key besides its charges, in a subject of its own.
type beside struct {
	coolDown window.CoolDown
	leases   window.Leases
}

func (b *beside) bytes() int {
	if b == nil {
		return 0
	}
	return besideBytes + b.leases.Bytes()
}

const besideBytes = 160

// The policies under which a shard finds a beside. No limiter has their algorithms.
var (
	leasing = &driver.Policy{Algorithm: 254}
	cooling = &driver.Policy{Algorithm: 255}
)

// beside makes room for more bytes, and calls do with a key's subject under a policy while its shard is locked. If there is none, beside
// creates one if create is set, or does nothing. do sets how long the subject is kept.
func (s *Store) beside(key string, policy *driver.Policy, create bool, more int, do func(sh *shard, sub *subject, now int64)) error {
	sh, hash, now := s.open(key)
	defer sh.mu.Unlock()
	sub := sh.find(hash, key, policy)
	if sub == nil {
		if !create {
			return nil
		}
		if sub = sh.add(now, hash, key, policy); sub == nil {
			return ErrFull
		}
		sub.state, sub.other = nil, new(beside)
	} else if !sh.grow(now, sub, more) {
		return ErrFull
	}
	do(sh, sub, now)
	sh.weigh(sub)
	if sub.index < 0 {
		sh.enqueue(sub)
	}
	return nil
}

// cool begins a cool-down. It counts for Options.MaxBytes, and is not evicted before it has ended.
func (s *Store) cool(op *driver.Op) error {
	c := op.CoolDown
	op.CoolDown = driver.CoolDown{}
	return s.beside(op.Key, cooling, c.Length > 0, 0, func(sh *shard, sub *subject, now int64) {
		state := &sub.other.coolDown
		if c.Length > 0 {
			state.Begin(now, c)
		}
		if op.CoolDown = state.At(now); op.CoolDown.Left > 0 {
			sh.bar(sub, now+op.CoolDown.Left)
		}
		sub.until = state.Expires()
	})
}

// Spend implements [window.Holder]. Leases of a key count for Options.MaxBytes, and are not evicted before they have
// ended. The only error is [ErrFull].
func (s *Store) Spend(_ context.Context, sp window.Spending) (held window.Held, err error) {
	err = s.leases(sp.Key, true, 0, func(now int64, l *window.Leases) { l.Take(now, &sp, &held) })
	return held, err
}

// Bring implements [window.Holder]. The only error is [ErrFull].
func (s *Store) Bring(_ context.Context, e window.Fetch) (kept bool, err error) {
	err = s.leases(e.Key, true, window.GrowsBy(&e), func(now int64, l *window.Leases) { kept = l.Bring(now, &e) })
	return kept, err
}

// Return implements [window.Holder].
func (s *Store) Return(_ context.Context, key string, began, keep int64) (units int64, err error) {
	err = s.leases(key, false, 0, func(_ int64, l *window.Leases) { units = l.Return(began, keep) })
	return units, err
}

// Forget implements [window.Holder].
func (s *Store) Forget(_ context.Context, key string) error {
	return s.leases(key, false, 0, func(_ int64, l *window.Leases) { l.Forget() })
}

func (s *Store) leases(key string, create bool, more int, do func(now int64, l *window.Leases)) error {
	return s.beside(key, leasing, create, more, func(sh *shard, sub *subject, now int64) {
		do(now, &sub.other.leases)
		if sub.until = sub.other.leases.Expires(); sub.until > now {
			sh.bar(sub, sub.until)
		}
	})
}

func (s *Store) settle(set *driver.Settlement) error {
	req := &set.Request
	sh, hash, now := s.open(req.Key)
	defer sh.mu.Unlock()
	sub := sh.chargedTo(now, hash, set)
	if sub != nil && set.ID != "" && !sh.grow(now, sub, sub.ids.grows()) && set.Units >= req.Cost { // less makes room
		return ErrFull
	}
	if sub != nil && sub.first(now, set) {
		more := set.Units - req.Cost
		sub.state.Settle(now, set.At, more, req.Policy.Limits)
		sh.settled(now, sub, more, req.Policy.Limits)
	}
	return nil
}

// chargedTo returns the subject that still holds the charge of a settlement, or nil.
func (sh *shard) chargedTo(now int64, hash uint64, set *driver.Settlement) *subject {
	sub := sh.find(hash, set.Key, set.Policy)
	if sub == nil || set.At-set.Delay < sub.born || now >= set.Expires() {
		return nil
	}
	return sub
}

// extend moves charges on copies of their logs, which take the place of the logs once all are moved.
func (s *Store) extend(ops []driver.Op) error {
	for i := range ops {
		if a := ops[i].Policy.Algorithm; a != driver.SlidingLog && a != driver.SlidingBuckets {
			return driver.ErrUnsupported
		}
		ops[i].Answer.At = 0
	}
	members, now, shards := s.lock(ops)
	defer s.unlock(shards)
	moved := make([]window.Log, len(ops))
	var room [driver.MaxLimits]driver.Status
	for i := range members {
		m := &members[i]
		set, limits := &m.Settlement, m.Policy.Limits
		m.sub = m.sh.chargedTo(now, m.hash, set)
		if m.sub == nil || m.sub.applied(now, set) {
			return nil
		}
		m.sub.deciding = true // so that it is not evicted for another subject
		defer func() { m.sub.deciding = false }()
		if !m.sh.grow(now, m.sub, m.sub.log.Grows(now, limits)+m.sub.ids.grows()) {
			if set.Delay > 0 { // the booking keeps its place
				return nil
			}
			return ErrFull
		}
		log := &moved[i]
		*log = m.sub.log.Clone()
		if !log.Lift(now, set.At, m.Cost, limits, set.Delay > 0) ||
			set.Delay > 0 && log.Look(now, m.Cost, limits, room[:len(limits)]) != 0 {
			return nil
		}
		log.Charge(now, m.Cost, limits)
	}
	for i := range members {
		m := &members[i]
		m.sub.log = moved[i]
		m.sub.first(now, &m.Settlement)
		m.sub.hold(now, now, &m.Request)
		m.sh.settled(now, m.sub, 0, m.Policy.Limits)
		m.Answer.At = now
	}
	return nil
}

func (s *Store) giveBack(op *driver.Op) {
	req, answer := op.Request, &op.Answer
	sh, hash, now := s.open(req.Key)
	defer sh.mu.Unlock()
	sub := sh.find(hash, req.Key, req.Policy)
	if sub != nil {
		answer.Charged = sub.state.Reward(now, req.Cost, req.Policy.Limits)
		sh.settled(now, sub, -answer.Charged, req.Policy.Limits)
	}
	req.Cost = 0
	statuses := sh.statuses[:len(req.Policy.Limits)]
	refusals := sh.look(now, sub, &req, statuses)
	answer.Set(now, refusals, statuses)
}

func (s *Store) forget(key string, policy *driver.Policy) {
	sh, hash, now := s.open(key)
	defer sh.mu.Unlock()
	if sub := sh.find(hash, key, policy); sub != nil {
		sh.clock.close(now)
		sh.drop(sub)
	}
}
