package denials

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"example.com/sash"
)

// Defaults of Options.
const (
	DefaultMaxKeys = 100_000
	DefaultMaxAge  = time.Second
)

const (
	costs  = 4   // refusals that are kept for a key: each cost has its own
	epochs = 256 // a power of two
)

// Options for a Store. The zero value is the default.
type Options struct {
	// MaxKeys caps the keys whose refusals are kept. A key takes about 700 bytes. The least used ones go
	// first, which costs a question to the store and nothing else. Zero is DefaultMaxKeys.
	MaxKeys int
	// MaxAge is the longest that a refusal is kept, and so the longest that a Reset by another process
	// goes unnoticed. Zero is DefaultMaxAge.
	MaxAge time.Duration
}

// A Store keeps refusals in memory and asks another store for everything else. It is safe for concurrent
// use and has nothing to close.
type Store struct {
	inner    sash.Store
	maxAge   time.Duration
	start    time.Time // instants are what has passed since: reading the date as well takes twice as long
	cache    *otter.Cache[string, *denial]
	seed     maphash.Seed
	epochs   [epochs]atomic.Uint64 // of the keys with one hash: how often something was given back
	answered atomic.Uint64
}

var (
	_ sash.Decorator    = (*Store)(nil)
	_ sash.MultiStore   = (*Store)(nil)
	_ sash.Deduplicator = (*Store)(nil)
	_ sash.Settler      = (*Store)(nil)
	_ sash.Resetter     = (*Store)(nil)
)

// A denial is the refusals of a key under one policy. It does not change once made.
type denial struct {
	policy   *sash.Policy
	refusals [costs]refusal
}

// A refusal is an answer that holds for a while. The zero value holds for none.
type refusal struct {
	cost     int64
	result   sash.Result
	received time.Duration // since the store's start, as until is
	until    time.Duration
}

// New returns a store that asks inner, which it does not own. A nil opts is the default. The error says
// which option is wrong.
func New(inner sash.Store, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	if opts.MaxKeys < 0 || opts.MaxAge < 0 {
		return nil, errors.New("denials: MaxKeys and MaxAge must not be negative; zero is the default")
	}
	s := &Store{inner: inner, maxAge: opts.MaxAge, start: time.Now(), seed: maphash.MakeSeed()}
	if s.maxAge == 0 {
		s.maxAge = DefaultMaxAge
	}
	size := opts.MaxKeys
	if size == 0 {
		size = DefaultMaxKeys
	}
	var err error
	s.cache, err = otter.New(&otter.Options[string, *denial]{MaximumSize: size})
	return s, err
}

// now returns the instant, since the start.
func (s *Store) now() time.Duration { return time.Since(s.start) }

// Decide implements [sash.Store]. An answer from memory has the source [sash.FromCache].
func (s *Store) Decide(ctx context.Context, req sash.Request) (res sash.Result, err error) {
	if req.Cost == 0 || req.Policy.CountRefused() {
		return s.inner.Decide(ctx, req)
	}
	if d, ok := s.cache.GetIfPresent(req.Key); ok {
		if r := d.find(req); r != nil {
			if now := s.now(); now < r.until {
				s.answered.Add(1)
				res = r.result.After(now - r.received)
				res = res.Part(req, 0)
				res.Source = sash.FromCache
				return res, nil
			}
		}
	}
	epoch := s.epoch(req.Key)
	before, sent := epoch.Load(), s.now()
	res, err = s.inner.Decide(ctx, req)
	if err == nil && !res.Allowed && res.Firm && res.Source == sash.FromStore {
		s.keep(req, refusal{
			cost:     req.Cost,
			result:   res,
			received: s.now(),
			until:    sent + min(res.RetryAfter, s.maxAge),
		}, epoch, before)
	}
	return res, err
}

// keep keeps a refusal, unless something was given back while it was on its way.
func (s *Store) keep(req sash.Request, r refusal, epoch *atomic.Uint64, before uint64) {
	s.cache.Compute(req.Key, func(old *denial, found bool) (*denial, otter.ComputeOp) {
		if epoch.Load() != before {
			return nil, otter.CancelOp
		}
		d := &denial{policy: req.Policy}
		if found && old.policy.Equal(req.Policy) {
			*d = *old
		}
		d.set(r)
		return d, otter.WriteOp
	})
}

// set puts a refusal in the place of one of the same cost, or else of the one that ends first.
func (d *denial) set(r refusal) {
	place := &d.refusals[0]
	for i := range d.refusals {
		old := &d.refusals[i]
		if old.cost == r.cost {
			place = old
			break
		}
		if old.until < place.until {
			place = old
		}
	}
	*place = r
}

// find returns the refusal of the same call, or nil.
func (d *denial) find(req sash.Request) *refusal {
	for i := range d.refusals {
		if r := &d.refusals[i]; r.cost == req.Cost && d.policy.Equal(req.Policy) {
			return r
		}
	}
	return nil
}

// Answered returns how many calls were answered from memory.
func (s *Store) Answered() uint64 { return s.answered.Load() }

// forget drops what is kept of a key, and what is on its way.
func (s *Store) forget(key string) {
	s.epoch(key).Add(1)
	s.cache.Invalidate(key)
}

func (s *Store) epoch(key string) *atomic.Uint64 {
	return &s.epochs[maphash.String(s.seed, key)&(epochs-1)]
}

// Unwrap implements [sash.Decorator].
func (s *Store) Unwrap() sash.Store { return s.inner }

// DecideOnce implements [sash.Deduplicator]. It goes straight to the store: what a
// repeated call got before holds, whatever was refused since. The error is
// [sash.ErrUnsupported] when the store does not know IDs.
func (s *Store) DecideOnce(ctx context.Context, id string, req sash.Request) (sash.Result, error) {
	if inner, ok := s.inner.(sash.Deduplicator); ok {
		return inner.DecideOnce(ctx, id, req)
	}
	return sash.Result{}, sash.ErrUnsupported
}

// DecideAll implements [sash.MultiStore]. It goes straight to the store.
func (s *Store) DecideAll(ctx context.Context, reqs []sash.Request) ([]sash.Result, error) {
	if inner, ok := s.inner.(sash.MultiStore); ok {
		return inner.DecideAll(ctx, reqs)
	}
	return nil, sash.ErrApart
}

// Settle implements [sash.Settler]. The error is [sash.ErrUnsupported] when the store does not settle.
func (s *Store) Settle(ctx context.Context, set sash.Settlement) error {
	inner, ok := s.inner.(sash.Settler)
	if !ok {
		return sash.ErrUnsupported
	}
	if set.Units < set.Request.Cost {
		defer s.forget(set.Request.Key) // also when it is not known whether the store was told
	}
	return inner.Settle(ctx, set)
}

// Reset implements [sash.Resetter]. The error is [sash.ErrUnsupported] when the store does not reset.
func (s *Store) Reset(ctx context.Context, key string, policy *sash.Policy) error {
	inner, ok := s.inner.(sash.Resetter)
	if !ok {
		return sash.ErrUnsupported
	}
	defer s.forget(key)
	return inner.Reset(ctx, key, policy)
}
