// Package memstore keeps charges in this process: the store for a single instance, for tests, and for
// replaying traffic on a virtual clock. It answers as redisstore does.
//
// Keys are spread over shards with a lock each. A key is dropped once none of its charges can count or be settled any more, and no ID of
// its calls is remembered. There is nothing to close: a new key sweeps a few others. A full store evicts keys: see [Options].
package memstore

import (
	"cmp"
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

// DefaultMaxBytes is the bound of bytes when Options do not give one.
const DefaultMaxBytes = 512 << 20

const (
	mostShards = 64      // a power of two
	shardBytes = 4 << 20 // at least: no key alone fills a shard
)

// Options for a Store. The zero value is the default.
type Options struct {
	// MaxBytes bounds the bytes of all keys, as the store estimates them. Each shard has an equal part, and the heap holds up to a fifth
	// more. If its shard is full, a key that needs memory evicts the least used of eight keys that refuse no call, until there is room. An
	// evicted subject may be admitted again for the units it was charged. The store never evicts a key with no unit left, with a refused
	// call whose RetryAfter is not over, or with bookings ahead: if all others are such, calls that need memory get [ErrFull]. Stats
	// counts both. Zero is DefaultMaxBytes. A key takes about 370 bytes, 16 to 32 more for each charge that its window has held at once,
	// and about 80 for each ID that it remembers, up to 16,384 IDs. After that, a new ID replaces the one that ends first.
	MaxBytes int64
	// Now is the clock. The store may call it concurrently, and it may go back. Nil is the wall clock: if that is set by 20 ms
	// or more, the store follows within a second.
	Now func() time.Time
}

// A Store decides in memory. It is safe for concurrent use, has every power of a [driver.Store], and keeps leases: see package lease.
type Store struct {
	seed    maphash.Seed
	most    int64         // bytes
	evicted atomic.Uint64 // keys evicted before they expired
	turned  atomic.Uint64 // calls that got ErrFull
	shards  []shard       // a power of two
}

var _ window.Holder = (*Store)(nil)

// New returns an empty store. A nil opts is the default.
func New(opts *Options) *Store {
	opts = cmp.Or(opts, &Options{})
	s := &Store{seed: maphash.MakeSeed(), most: opts.MaxBytes}
	if s.most <= 0 {
		s.most = DefaultMaxBytes
	}
	n := mostShards
	for n > 1 && s.most/int64(n) < shardBytes {
		n /= 2
	}
	s.shards = make([]shard, n)
	start := time.Now()
	for i := range s.shards {
		s.shards[i].store, s.shards[i].most = s, s.most/int64(n)
		s.shards[i].clock = newClock(opts.Now, start)
		s.shards[i].subjects = make(map[uint64]*subject)
	}
	return s
}

func (s *Store) hash(key string) uint64 { return maphash.String(s.seed, key) }

func (s *Store) index(hash uint64) int { return int(hash & uint64(len(s.shards)-1)) }

// open locks the shard of a key, and returns it with the key's hash and the time. The caller unlocks it.
func (s *Store) open(key string) (sh *shard, hash uint64, now int64) {
	hash = s.hash(key)
	sh = &s.shards[s.index(hash)]
	sh.mu.Lock()
	return sh, hash, sh.clock.now()
}

// Powers implements [driver.Store].
func (s *Store) Powers() driver.Powers {
	return driver.CanAll | driver.CanAny | driver.CanID | driver.CanBook | driver.CanBlock | driver.CanTake | driver.CanSettle |
		driver.CanExtend | driver.CanForget | driver.CanCool
}

// Do implements [driver.Store]. It does not block and ignores the context. The only error is [ErrFull], and then nothing was charged.
func (s *Store) Do(_ context.Context, b *driver.Batch) error {
	switch {
	case len(b.Ops) == 1:
		b.Chosen = 0
	case b.Mode == driver.Any:
		return s.any(b)
	case b.Mode == driver.Each:
		for i := range b.Ops {
			b.Ops[i].Err = s.together(b.Ops[i : i+1])
		}
		return nil
	case b.Ops[0].Kind != driver.Charge && b.Ops[0].Kind != driver.Extend:
		return driver.ErrUnsupported
	}
	return s.together(b.Ops)
}

// together carries out operations of one kind in one step: several charges or extensions, or one of any kind.
func (s *Store) together(ops []driver.Op) error {
	switch op := &ops[0]; op.Kind {
	case driver.Charge:
		if len(ops) > 1 {
			return s.all(ops)
		}
		return s.charge(op)
	case driver.Settle:
		return s.settle(&op.Settlement)
	case driver.Extend:
		return s.extend(ops)
	case driver.GiveBack:
		s.giveBack(op)
	case driver.Forget:
		s.forget(op.Key, op.Policy)
	case driver.Cool:
		return s.cool(op)
	default:
		return driver.ErrUnsupported
	}
	return nil
}

func (s *Store) charge(op *driver.Op) error {
	req := op.Request
	sh, hash, now := s.open(req.Key)
	defer sh.mu.Unlock()
	if op.ID != "" {
		return sh.chargeOnce(now, hash, op)
	}
	if req.Partial {
		req.Cost = sh.fit(now, hash, req)
	}
	_, err := sh.decide(now, hash, &req, &op.Answer)
	if err == nil && req.Partial && op.Answer.Allowed() {
		op.Answer.Charged = req.Cost
	}
	return err
}

func (sh *shard) chargeOnce(now int64, hash uint64, op *driver.Op) error {
	req, answer := op.Request, &op.Answer
	name, statuses := window.CallName(op.ID), sh.statuses[:len(req.Policy.Limits)]
	sub, ok := sh.find(hash, req.Key, req.Policy), true
	if sub != nil {
		if m, ok := sub.ids.find(now, name); ok {
			sub.state.Look(now, 0, req.Policy.Limits, statuses)
			at := m.until - driver.RepeatTime.Microseconds()
			answer.Set(at, window.Again(m.refusals, statuses), statuses)
			if answer.Allowed() {
				answer.Delay = max(0, at-now)
			}
			return nil
		}
		ok = sh.fits(now, sub, &req, sub.ids.grows())
	} else if req.Cost > 0 {
		ok = sh.room(now, leastBytes(req.Key)+idsBytes+idBytes)
	}
	if !ok {
		return ErrFull
	}
	sub, err := sh.decide(now, hash, &req, answer)
	if err != nil {
		return err
	}
	if req.Cost > 0 && (answer.Allowed() || req.Policy.CountRefused) {
		sub.charged(now, answer.At, name, answer.Refusals)
		sh.weigh(sub)
	}
	return nil
}

// Stats count the keys and the bytes of a store.
type Stats struct {
	// Keys is the number of keys with charges that still count or may still be settled, or with IDs of calls.
	Keys int
	// Bytes is about the number of bytes that the keys take, and MaxBytes the most: see Options.
	Bytes, MaxBytes int64
	// Evicted counts the keys that were dropped before they expired because the store was full.
	Evicted uint64
	// TurnedAway counts the calls that got ErrFull.
	TurnedAway uint64
}

// Stats returns the counts. Keys includes expired keys that were not dropped yet.
func (s *Store) Stats() Stats {
	keys, bytes := 0, int64(0)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		keys, bytes = keys+sh.held(), bytes+sh.bytes
		sh.mu.Unlock()
	}
	return Stats{keys, bytes, s.most, s.evicted.Load(), s.turned.Load()}
}

// An id names a state: each algorithm and each resolution counts on its own.
type id struct {
	key        string
	algorithm  driver.Algorithm
	resolution time.Duration
}

// A clock returns a shard's time in microseconds since the Unix epoch, from Options.Now or the wall clock. It reads the wall clock once a
// second, and in between only the monotonic clock, which takes half as long as time.Now:
//
//	now = ahead + time since start
//
// If the wall clock is set, the clock follows within a second. If its source trembles, going back by a millisecond or less, the clock
// stands still until the source has caught up, so every bound holds. After a subject was removed at some instant, the clock returns later
// instants only. So a charge of a removed subject is earlier than every later charge, however many subjects are removed.
type clock struct {
	custom func() time.Time // Options.Now, or nil
	start  time.Time
	ahead  int64         // the wall clock minus the time since start
	look   time.Duration // when to read the wall clock next, since start
	last   int64         // the last reading
	closed int64         // when a subject was last removed; 0 once the clock has moved on
	stood  int64         // what the clock would show without removals, when closed was set first
}

const (
	lookEvery = time.Second
	// If the difference is smaller, nobody set the clock: the process was delayed between the two readings.
	leastStep = int64(20 * time.Millisecond / time.Microsecond)
)

func newClock(custom func() time.Time, start time.Time) clock {
	return clock{custom: custom, start: start, ahead: start.UnixMicro(), look: lookEvery}
}

// now reads the clock. The caller holds the shard's lock, so a reading is earlier than the previous one only if the clock
// was set back by more than a tremble.
func (c *clock) now() int64 {
	now := c.read()
	if now < c.last && c.last-now <= threshold.Log.Step {
		now = c.last
	}
	c.last = now
	if c.closed != 0 {
		if c.stood <= now && now <= c.closed {
			return c.closed + 1
		}
		c.closed = 0
	}
	return now
}

// close makes every later reading later than now, the last reading, because a subject is removed at now. The clock still
// follows a source that is set back.
func (c *clock) close(now int64) {
	if c.closed == 0 {
		c.stood = now
	}
	c.closed = now
}

func (c *clock) read() int64 {
	if c.custom != nil {
		return c.custom().UnixMicro()
	}
	since := time.Since(c.start)
	if since >= c.look {
		date := time.Now()
		since = date.Sub(c.start)
		c.follow(date.UnixMicro(), since)
	}
	return c.ahead + since.Microseconds()
}

// follow reads the wall clock, in microseconds, at a time since the start.
func (c *clock) follow(date int64, since time.Duration) {
	c.look = since + lookEvery
	ahead := date - since.Microseconds()
	if step := ahead - c.ahead; step >= leastStep || step <= -leastStep {
		c.ahead = ahead
	}
}
