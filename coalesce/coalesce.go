package coalesce

import (
	"context"
	"hash/maphash"
	"sync"

	"example.com/sash"
)

const shards = 64 // a power of two

// A Store decides concurrent calls of one key together. It is safe for concurrent use. It holds nothing
// but calls that wait, and has nothing to close: a goroutine that it starts ends when nobody waits for the
// key any more. In tests with testing/synctest, make it in the bubble: it uses channels again.
type Store struct {
	inner  sash.Store
	apart  bool // each call is decided by itself
	seed   maphash.Seed
	shards [shards]shard
	calls  sync.Pool // of *call whose callers have their answer
}

var (
	_ sash.Decorator    = (*Store)(nil)
	_ sash.MultiStore   = (*Store)(nil)
	_ sash.Deduplicator = (*Store)(nil)
	_ sash.Settler      = (*Store)(nil)
	_ sash.Resetter     = (*Store)(nil)
)

// New returns a store that decides through inner, which it does not own.
func New(inner sash.Store) *Store {
	s := &Store{inner: inner, apart: sash.Substituted(inner), seed: maphash.MakeSeed()}
	s.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	for i := range s.shards {
		s.shards[i].busy = make(map[string]*queue)
	}
	return s
}

// A shard holds the keys that have a decision under way.
type shard struct {
	mu   sync.Mutex
	busy map[string]*queue // guarded by mu
}

// A queue holds the calls of one key that wait for the decision under way, in the order in which they came.
type queue struct {
	calls   []*call // guarded by the shard's mu
	refused bool    // the last answer was a refusal; belongs to whoever decides
}

// Decide implements [sash.Store]. When ctx ends while the call waits for others it is not charged; when it
// ends while the call is decided it may be.
func (s *Store) Decide(ctx context.Context, req sash.Request) (sash.Result, error) {
	if s.apart || req.Cost == 0 || req.Policy.CountRefused() {
		return s.inner.Decide(ctx, req)
	}
	sh := &s.shards[maphash.String(s.seed, req.Key)&(shards-1)]
	sh.mu.Lock()
	q := sh.busy[req.Key]
	if q == nil {
		q = &queue{}
		sh.busy[req.Key] = q
		sh.mu.Unlock()
		defer s.leave(sh, req.Key, q)
		res, err := s.inner.Decide(ctx, req)
		q.refused = err == nil && !res.Allowed
		return res, err
	}
	c := s.calls.Get().(*call)
	c.ctx, c.req = ctx, req
	q.calls = append(q.calls, c)
	sh.mu.Unlock()
	select {
	case <-c.done:
		c.batch.leave()
		res, err := c.result, c.err
		*c = call{done: c.done}
		s.calls.Put(c)
		return res, err
	case <-ctx.Done():
		sh.giveUp(q, c)
		return sash.Result{}, ctx.Err()
	}
}

// leave ends a caller's own decision: those who came meanwhile are decided by a goroutine, so that the
// caller has its answer at once.
func (s *Store) leave(sh *shard, key string, q *queue) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(q.calls) == 0 {
		delete(sh.busy, key)
		return
	}
	go s.run(sh, key, q)
}

// run decides batch after batch until nobody waits. Those who were just answered often have the next call
// ready: a batch is taken when all of them have run, so that their calls are in it. They are ready to run, or
// have given up, so that takes no longer than the scheduler does.
func (s *Store) run(sh *shard, key string, q *queue) {
	for {
		b := sh.take(key, q)
		if b == nil {
			return
		}
		q.refused = b.decide(s.inner, q.refused)
		b.left.Wait()
	}
}

// Unwrap implements [sash.Decorator].
func (s *Store) Unwrap() sash.Store { return s.inner }

// DecideOnce implements [sash.Deduplicator]. It goes straight to the store. The error is
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

// Settle implements [sash.Settler]: what a call was charged is a part of its batch's entry, which is
// corrected. The error is [sash.ErrUnsupported] when the store does not settle.
func (s *Store) Settle(ctx context.Context, set sash.Settlement) error {
	if inner, ok := s.inner.(sash.Settler); ok {
		return inner.Settle(ctx, set)
	}
	return sash.ErrUnsupported
}

// Reset implements [sash.Resetter]. The error is [sash.ErrUnsupported] when the store does not reset.
func (s *Store) Reset(ctx context.Context, key string, policy *sash.Policy) error {
	if inner, ok := s.inner.(sash.Resetter); ok {
		return inner.Reset(ctx, key, policy)
	}
	return sash.ErrUnsupported
}
