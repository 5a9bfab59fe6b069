// Package denials answers refused calls from memory while their refusal still holds. A caller that is over its limit and
// does not stop then costs the store nothing.
//
// # Exact
//
// A refusal says when the same call would be admitted at the earliest; other calls can only make it later. Only units that
// are given back could make room earlier, so a refusal is kept only if the store says that none can be (see
// [driver.Answer].Firm). It is kept for one cost and one policy: after a limit is raised, the store decides again.
//
// The time counts from when the request was sent, which was before the store decided:
//
//	           sent      decided       received
//	─────────────┼──────────┼─────────────┼───────────────────────────────▶ time
//	             ├──── answered from memory ────┤
//	                        ├──────── RetryAfter ────────┤   room
//
// So no call is refused that the store would admit, as long as this machine's clock runs as fast as the store's. (If the
// store's clock jumps forward, the store admits earlier; see the guarantees.) RetryAfter and the other times are those of
// the store's answer, less the time since. Remaining is that of the answer, without units that have become free since.
//
// # Bookings
//
// The refusal of a booking says at which instant the call would fit behind all earlier bookings. A later booking of the same
// cost is refused from memory if that instant is beyond the time within which it may start. A plain call goes to the store: it
// may go ahead of the queue. After the refusal of a plain call, neither kind has room before its retry time.
//
// # Resets
//
// A Reset through this store takes effect at once. A Reset through another process, and every other loss of state, takes
// effect after maxAge at the latest: no refusal is kept longer, whatever its RetryAfter.
//
// Partial calls, decisions over several subjects and calls under policies that charge refused calls go straight to the
// store. So do all calls of a subject under a policy with a block, until the subject is blocked.
package denials

import (
	"cmp"
	"context"
	"hash/maphash"
	"sync"
	"time"

	"example.com/sash/driver"
)

const (
	defaultMaxAge = time.Second // for which a refusal is kept, unless New gets another
	mostKept      = 4           // refusals of a key: one for plain calls and one for bookings of a cost
	shards        = 256         // a power of two
	keysPerShard  = 400         // about 100,000 keys in all, of about 700 bytes each
)

// A Store answers from memory while a refusal holds and passes everything else on to another store. It is safe for
// concurrent use and has nothing to close. While bookings lie ahead no refusal is firm, because each booking can be given back.
type Store struct {
	driver.Passthrough
	maxAge time.Duration
	start  time.Time // instants are durations since then: reading the wall clock too takes twice as long
	seed   maphash.Seed
	shards []shard
}

// A shard keeps the refusals of a part of the keys, chosen by hash.
type shard struct {
	mu    sync.Mutex
	most  int
	keys  map[string]*denial // guarded by mu, like the denials
	epoch uint64             // guarded by mu: how often units of a key were given back
}

// A denial is the refusals of a key under one policy.
type denial struct {
	policy   *driver.Policy
	refusals [mostKept]refusal
}

// A refusal is an answer that holds until an instant. The zero value does not hold.
type refusal struct {
	cost     int64
	books    bool // the call could have been booked: it had no room behind the queue, but a plain call may have
	answer   driver.Answer
	received time.Duration // since the store's start, as room and until are
	room     time.Duration // until when there is no room
	until    time.Duration // until when the refusal is kept
}

// refuses reports whether a request sent now would be refused. If a plain call has no room, there is none behind the queue either.
func (r *refusal) refuses(req *driver.Request, now time.Duration) bool {
	return r.cost == req.Cost && now < r.until && now+microseconds(req.Within) < r.room && (req.Within > 0 || !r.books)
}

func (r *refusal) again(req *driver.Request, now time.Duration) driver.Answer {
	answer, passed := r.answer, max(0, (now-r.received).Microseconds())
	var room [driver.MaxLimits]driver.Status
	statuses := room[:copy(room[:], answer.Statuses())]
	refusals := answer.Refusals
	for i := range statuses {
		s := &statuses[i]
		s.Retry, s.Release, s.Reset = max(0, s.Retry-passed), max(0, s.Release-passed), max(0, s.Reset-passed)
		if req.Within > 0 {
			if refusals &^= 1 << i; s.Retry > req.Within {
				refusals |= 1 << i
			}
		}
	}
	answer.Set(answer.At+passed, refusals, statuses)
	answer.Source = driver.FromCache
	return answer
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// New returns a store over next. No refusal is kept longer than maxAge; zero is a second. New panics if next is nil.
func New(next driver.Store, maxAge time.Duration) *Store {
	if driver.Nil(next) {
		panic("denials: New needs a store to decide with, such as memstore.New(nil)")
	}
	s := &Store{Passthrough: driver.Passthrough{Store: next}, start: time.Now(), seed: maphash.MakeSeed()}
	s.maxAge = cmp.Or(maxAge, defaultMaxAge)
	s.size(shards, keysPerShard)
	return s
}

// size sets how many keys the store keeps. A key beyond that replaces any other.
func (s *Store) size(shards, keys int) {
	s.shards = make([]shard, shards)
	for i := range s.shards {
		s.shards[i].most, s.shards[i].keys = keys, make(map[string]*denial)
	}
}

func (s *Store) shard(key string) *shard {
	return &s.shards[maphash.String(s.seed, key)&uint64(len(s.shards)-1)]
}

// Recall sets the answer that is in memory, for failover. An answer has the source [driver.FromCache].
func (s *Store) Recall(op *driver.Op) bool {
	if !kept(op) {
		return false
	}
	sh := s.shard(op.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	d, now := sh.keys[op.Key], time.Since(s.start)
	if d == nil {
		return false
	}
	for i := range d.refusals {
		if r := &d.refusals[i]; r.refuses(&op.Request, now) && d.policy.Equal(op.Policy) {
			op.Answer = r.again(&op.Request, now)
			return true
		}
	}
	return false
}

func kept(op *driver.Op) bool {
	return op.Kind == driver.Charge && op.Cost > 0 && op.ID == "" && !op.Partial && !op.Policy.CountRefused
}

// Do implements [driver.Store]. It answers from Recall if it can, and keeps no refusals of several subjects. An operation that may
// make room drops the key's refusals, even after an error, because the store may have carried it out.
func (s *Store) Do(ctx context.Context, b *driver.Batch) error {
	op := &b.Ops[0]
	if len(b.Ops) > 1 || !kept(op) {
		for i := range b.Ops {
			if op := &b.Ops[i]; op.Kind != driver.Charge && op.MayCharge() == 0 {
				defer s.forget(op.Key)
			}
		}
		return s.Store.Do(ctx, b)
	}
	if s.Recall(op) {
		b.Chosen = 0
		return nil
	}
	sh := s.shard(op.Key)
	sh.mu.Lock()
	epoch := sh.epoch
	sh.mu.Unlock()
	sent := time.Since(s.start)
	err := s.Store.Do(ctx, b)
	answer := &op.Answer
	counts := op.Policy.Block.Refusals > 0 && !answer.Blocked // for a block
	if err == nil && !answer.Allowed() && answer.Firm && answer.Source == driver.FromStore && !counts {
		retry := microseconds(answer.Retry())
		sh.keep(&op.Request, epoch, refusal{
			cost: op.Cost, books: op.Within > 0,
			answer: *answer, received: time.Since(s.start),
			room: sent + retry, until: sent + min(retry, s.maxAge),
		})
	}
	return err
}

// keep stores a refusal, unless units were given back since the request was sent. The refusal replaces the one of the same
// cost and kind, or else the one that ends first.
func (sh *shard) keep(req *driver.Request, epoch uint64, r refusal) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.epoch != epoch {
		return
	}
	d := sh.keys[req.Key]
	if d == nil && len(sh.keys) >= sh.most {
		for other := range sh.keys {
			delete(sh.keys, other)
			break
		}
	}
	if d == nil || !d.policy.Equal(req.Policy) {
		d = &denial{policy: req.Policy}
		sh.keys[req.Key] = d
	}
	place := &d.refusals[0]
	for i := range d.refusals {
		old := &d.refusals[i]
		if old.cost == r.cost && old.books == r.books {
			place = old
			break
		}
		if old.until < place.until {
			place = old
		}
	}
	*place = r
}

// forget drops the refusals of a key, also those in flight.
func (s *Store) forget(key string) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.epoch++
	delete(sh.keys, key)
}
