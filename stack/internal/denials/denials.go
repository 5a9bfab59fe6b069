package denials

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// Defaults of Options.
const (
	DefaultMaxKeys = 100_000
	DefaultMaxAge  = time.Second
)

const (
	kept   = 4   // refusals of a key: one for plain calls and one for bookings of a cost
	epochs = 256 // a power of two
)

// Options for a Store. The zero value is the default.
type Options struct {
	// MaxKeys caps the keys whose refusals are kept. A key takes about 700 bytes. The least used keys are dropped
	// first, which costs one request to the store. Zero is DefaultMaxKeys.
	MaxKeys int
	// MaxAge is the longest time that a refusal is kept, and so the longest time until a Reset by another process
	// takes effect here. Zero is DefaultMaxAge.
	MaxAge time.Duration
}

// A Store answers from memory while a refusal holds and passes everything else on to another store. It is safe for
// concurrent use and has nothing to close.
//
// A refusal holds if it is [driver.Answer].Firm: whatever is given back meanwhile. While bookings lie ahead none is, so every
// call asks the store. Each booking can be given back, and may be worth less than it was charged until it leaves its last
// window; the log does not record which charges can be, so behind bookings no part of what is used is certain to stay.
type Store struct {
	driver.Passthrough
	maxAge   time.Duration
	start    time.Time // instants are durations since then: reading the wall clock too takes twice as long
	cache    *lru
	seed     maphash.Seed
	epochs   [epochs]atomic.Uint64 // by hash of the key: how often units were given back
	answered atomic.Uint64
}

var (
	_ driver.Recaller = (*Store)(nil)
	_ driver.Starter  = (*Store)(nil)
)

// A denial is the refusals of a key under one policy. It is immutable.
type denial struct {
	policy   *driver.Policy
	refusals [kept]refusal
}

// A refusal is an answer that holds until an instant. The zero value does not hold.
type refusal struct {
	cost     int64
	books    bool // the call could have been booked: it had no room behind the queue, but a plain call may have
	answer   driver.Answer
	received time.Duration // since the store's start, as room and until are
	room     time.Duration // until when there is none
	until    time.Duration // until when it is kept
}

// refuses reports whether a request that is sent now would be refused. A plain call that has no room has none behind the
// queue either.
func (r *refusal) refuses(req *driver.Request, now time.Duration) bool {
	return r.cost == req.Cost && now < r.until && now+microseconds(req.Within) < r.room && (req.Within > 0 || !r.books)
}

// again returns the answer to a request that it refuses now.
func (r *refusal) again(req *driver.Request, now time.Duration) driver.Answer {
	answer := r.answer.After(now - r.received)
	answer.Source = driver.FromCache
	if req.Within > 0 {
		answer.Refusals = 0
		for i, s := range answer.Statuses() {
			if s.Retry > req.Within {
				answer.Refusals |= 1 << i
			}
		}
	}
	return answer
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// New returns a store over next, which it does not own. A nil opts is the default. The error says which option is
// wrong. New panics if next is nil.
func New(next driver.Store, opts *Options) (*Store, error) {
	if next == nil {
		panic("denials: New needs a store to decide with, such as memstore.New(nil)")
	}
	opts = cmp.Or(opts, &Options{})
	if opts.MaxKeys < 0 || opts.MaxAge < 0 {
		return nil, errors.New("denials: MaxKeys and MaxAge must not be negative; zero is the default")
	}
	s := &Store{Passthrough: driver.Passthrough{Next: next}, maxAge: opts.MaxAge, start: time.Now(), seed: maphash.MakeSeed()}
	s.maxAge = cmp.Or(s.maxAge, DefaultMaxAge)
	size := cmp.Or(opts.MaxKeys, DefaultMaxKeys)
	s.cache = newLRU(size)
	return s, nil
}

// now returns the time since the start.
func (s *Store) now() time.Duration { return time.Since(s.start) }

// Recall implements [driver.Recaller]. An answer has the source [driver.FromCache].
func (s *Store) Recall(req driver.Request) (driver.Answer, bool) {
	if neverKept(&req) {
		return driver.Answer{}, false
	}
	d := s.cache.get(req.Key)
	if d == nil {
		return driver.Answer{}, false
	}
	now := s.now()
	r := d.find(&req, now)
	if r == nil {
		return driver.Answer{}, false
	}
	s.answered.Add(1)
	return r.again(&req, now), true
}

// neverKept reports whether no refusal is kept for a request.
func neverKept(req *driver.Request) bool {
	return req.Cost == 0 || req.Partial || req.Policy.CountRefused
}

// Decide implements [driver.Store]. An answer from memory is that of Recall.
func (s *Store) Decide(ctx context.Context, req driver.Request) (res driver.Answer, err error) {
	if neverKept(&req) {
		return s.Next.Decide(ctx, req)
	}
	if answer, ok := s.Recall(req); ok {
		return answer, nil
	}
	epoch := s.epoch(req.Key)
	before, sent := epoch.Load(), s.now()
	res, err = s.Next.Decide(ctx, req)
	s.learn(req, &res, err, epoch, before, sent)
	return res, err
}

// Start implements [driver.Starter]. It does not look for an answer that Recall has.
func (s *Store) Start(ctx context.Context, req driver.Request, done func(driver.Answer, error)) driver.Started {
	next, ok := s.Next.(driver.Starter)
	if !ok {
		return nil
	}
	if neverKept(&req) {
		return next.Start(ctx, req, done)
	}
	epoch := s.epoch(req.Key)
	before, sent := epoch.Load(), s.now()
	return next.Start(ctx, req, func(res driver.Answer, err error) {
		s.learn(req, &res, err, epoch, before, sent)
		done(res, err)
	})
}

// learn keeps the answer to a request if it is a refusal that holds.
func (s *Store) learn(req driver.Request, res *driver.Answer, err error, epoch *atomic.Uint64, before uint64, sent time.Duration) {
	if err == nil && !res.Allowed() && res.Firm && (res.Blocked || req.Policy.Block.Refusals == 0) && res.Source == driver.FromStore {
		retry := microseconds(res.Retry())
		s.keep(req, refusal{
			cost:     req.Cost,
			books:    req.Within > 0,
			answer:   *res,
			received: s.now(),
			room:     sent + retry,
			until:    sent + min(retry, s.maxAge),
		}, epoch, before)
	}
}

// keep stores a refusal, unless units were given back since the request was sent.
func (s *Store) keep(req driver.Request, r refusal, epoch *atomic.Uint64, before uint64) {
	s.cache.update(req.Key, func(old *denial) *denial {
		if epoch.Load() != before {
			return nil
		}
		d := &denial{policy: req.Policy}
		if old != nil && old.policy.Equal(req.Policy) {
			*d = *old
		}
		d.set(r)
		return d
	})
}

// set replaces the refusal of the same cost and kind, or else the one that ends first.
func (d *denial) set(r refusal) {
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

// find returns a refusal that refuses the request too, under an equal policy, or nil.
func (d *denial) find(req *driver.Request, now time.Duration) *refusal {
	for i := range d.refusals {
		if r := &d.refusals[i]; r.refuses(req, now) && d.policy.Equal(req.Policy) {
			return r
		}
	}
	return nil
}

// Answered returns how many calls were answered from memory.
func (s *Store) Answered() uint64 { return s.answered.Load() }

// forget drops the refusals of a key, and those that are in flight.
func (s *Store) forget(key string) {
	s.epoch(key).Add(1)
	s.cache.remove(key)
}

func (s *Store) epoch(key string) *atomic.Uint64 {
	return &s.epochs[maphash.String(s.seed, key)&(epochs-1)]
}

// Settle implements [driver.Settler]. The error is [driver.ErrUnsupported] when the store does not settle.
func (s *Store) Settle(ctx context.Context, set driver.Settlement) error {
	if set.Units < set.Request.Cost {
		defer s.forget(set.Request.Key) // also after an error, when the store may have settled
	}
	return s.Passthrough.Settle(ctx, set)
}

// Reward implements [driver.Taker]. The error is [driver.ErrUnsupported] when the store does not give units back.
func (s *Store) Reward(ctx context.Context, req driver.Request) (driver.Answer, error) {
	defer s.forget(req.Key) // also after an error, when the store may have given them back
	return s.Passthrough.Reward(ctx, req)
}

// Reset implements [driver.Resetter]. The error is [driver.ErrUnsupported] when the store does not reset.
func (s *Store) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	defer s.forget(key)
	return s.Passthrough.Reset(ctx, key, policy)
}
