package coalesce

import (
	"context"
	"hash/maphash"
	"sync"

	"example.com/sash/driver"
)

const shards = 64 // a power of two

// A Store decides concurrent calls of one key together. It is safe for concurrent use and has nothing to close: it
// holds only waiting calls, and its goroutine for a key ends when no call waits for the key. In tests with
// testing/synctest, create it in the bubble, because it reuses channels.
type Store struct {
	driver.Passthrough
	apart  bool // do not join calls
	seed   maphash.Seed
	shards [shards]shard
	calls  sync.Pool // of *call whose callers have their answer
}

// New returns a store that decides through next, which it does not own. It panics if next is nil.
func New(next driver.Store) *Store {
	if next == nil {
		panic("coalesce: New needs a store to decide with, such as memstore.New(nil)")
	}
	s := &Store{Passthrough: driver.Passthrough{Next: next}, apart: driver.Substituted(next), seed: maphash.MakeSeed()}
	s.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	for i := range s.shards {
		s.shards[i].busy = make(map[string]*queue)
	}
	return s
}

// A shard holds the keys that have a decision in flight.
type shard struct {
	mu   sync.Mutex
	busy map[string]*queue // guarded by mu
}

// A queue holds the calls of one key that wait for the decision in flight, in order of arrival.
type queue struct {
	calls   []*call // guarded by the shard's mu
	refused bool    // the last answer was a refusal; owned by the goroutine that decides
}

// Decide implements [driver.Store]. If ctx ends while the call waits for others, the call is not charged. If ctx ends
// during the decision, it may be charged.
func (s *Store) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if s.apart || req.Cost == 0 || req.Policy.CountRefused {
		return s.Next.Decide(ctx, req)
	}
	sh := &s.shards[maphash.String(s.seed, req.Key)&(shards-1)]
	sh.mu.Lock()
	q := sh.busy[req.Key]
	if q == nil {
		q = &queue{}
		sh.busy[req.Key] = q
		sh.mu.Unlock()
		defer s.leave(sh, req.Key, q)
		res, err := s.Next.Decide(ctx, req)
		q.refused = err == nil && !res.Allowed()
		return res, err
	}
	c := s.calls.Get().(*call)
	c.ctx, c.req = ctx, req
	q.calls = append(q.calls, c)
	sh.mu.Unlock()
	select {
	case <-c.done:
		c.batch.leave()
		res, err := c.answer, c.err
		*c = call{done: c.done}
		s.calls.Put(c)
		return res, err
	case <-ctx.Done():
		sh.giveUp(q, c)
		return driver.Answer{}, ctx.Err()
	}
}

// leave ends a caller's own decision. A goroutine decides the calls that have queued since, so that the caller has its
// answer at once.
func (s *Store) leave(sh *shard, key string, q *queue) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(q.calls) == 0 {
		delete(sh.busy, key)
		return
	}
	go s.run(sh, key, q)
}

// run decides batch after batch until no call waits. It takes a batch when all callers of the last one have run,
// because they often make their next call at once, and it should be in the batch. They are runnable or have given up,
// so the wait is as short as the scheduler makes it.
func (s *Store) run(sh *shard, key string, q *queue) {
	for {
		b := sh.take(key, q)
		if b == nil {
			return
		}
		q.refused = b.decide(s.Next, q.refused)
		b.left.Wait()
	}
}
