package coalesce

import (
	"context"
	"hash/maphash"
	"sync"

	"example.com/sash/driver"
)

const shards = 64 // a power of two

// A Store decides concurrent calls together. It is safe for concurrent use and has nothing to close: it
// holds only waiting calls, and its goroutine for a key ends when no call waits for the key. In tests with
// testing/synctest, create it in the bubble, because it reuses channels.
type Store struct {
	driver.Passthrough
	next   driver.Store   // decides: Next, or a gatherer before it
	apart  bool           // do not join calls
	each   driver.Batcher // decides many bookings; nil if the store decides one at a time
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
	s.each, _ = driver.As[driver.Batcher](next)
	s.next = next
	if many, ok := driver.As[driver.Gatherer](next); ok && !s.apart {
		s.next = &gatherer{Gatherer: many, calls: &s.calls, places: make(map[int]*place)}
	}
	s.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	for i := range s.shards {
		s.shards[i].plain = make(map[string]*queue)
		s.shards[i].bookings = make(map[string]*queue)
	}
	return s
}

// A shard holds the keys that have a decision in flight. Bookings have queues of their own, so that no plain call waits
// for them.
type shard struct {
	mu       sync.Mutex
	plain    map[string]*queue // guarded by mu
	bookings map[string]*queue // guarded by mu
}

// A queue holds the calls of one key that wait for the decision in flight, in order of arrival.
type queue struct {
	key     string
	in      map[string]*queue // plain or bookings
	calls   []*call           // guarded by the shard's mu
	refused bool              // the last answer was a refusal; owned by the goroutine that decides
}

// Decide implements [driver.Store]. If ctx ends while the call waits for others, the call is not charged. If ctx ends
// during the decision, it may be charged; a booking that may be settled is given back then.
func (s *Store) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if s.straight(&req) || req.Within > 0 && s.each == nil {
		return s.next.Decide(ctx, req)
	}
	sh := s.shard(req.Key)
	if req.Within > 0 {
		return s.book(ctx, sh, req)
	}
	sh.mu.Lock()
	q := sh.plain[req.Key]
	if q == nil {
		q = &queue{key: req.Key, in: sh.plain}
		sh.plain[req.Key] = q
		sh.mu.Unlock()
		defer s.leave(sh, q)
		res, err := s.next.Decide(ctx, req)
		q.refused = err == nil && !res.Allowed()
		return res, err
	}
	c := s.join(ctx, q, req)
	sh.mu.Unlock()
	return s.await(sh, q, c)
}

// straight reports whether a request is not joined with others of its key.
func (s *Store) straight(req *driver.Request) bool {
	return s.apart || req.Cost == 0 || req.Partial || req.Policy.Block.Refusals > 0 || req.Policy.CountRefused
}

func (s *Store) shard(key string) *shard { return &s.shards[maphash.String(s.seed, key)&(shards-1)] }

// join adds a call to a queue. The caller holds the shard's mu.
func (s *Store) join(ctx context.Context, q *queue, req driver.Request) *call {
	c := s.calls.Get().(*call)
	c.ctx, c.req = ctx, req
	q.calls = append(q.calls, c)
	return c
}

// await waits for the answer to a call, or until its caller leaves.
func (s *Store) await(sh *shard, q *queue, c *call) (driver.Answer, error) {
	ctx := c.ctx
	select {
	case <-c.done:
		c.batch.leave()
		res, err := c.answer, ended(ctx, c.err)
		*c = call{done: c.done}
		s.calls.Put(c)
		return res, err
	case <-ctx.Done():
		sh.giveUp(q, c)
		select {
		case <-c.done:
			if c.req.Within > 0 && c.err == nil { // a booking, answered just now
				s.giveBack(c, c.answer)
			}
		default:
		}
		return driver.Answer{}, ctx.Err()
	}
}

// leave ends a caller's own decision. A goroutine decides the calls that have queued since, so that the caller has its
// answer at once.
func (s *Store) leave(sh *shard, q *queue) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(q.calls) == 0 {
		delete(q.in, q.key)
		return
	}
	go s.run(sh, q)
}

// run decides batch after batch until no call waits. It takes a batch when all callers of the last one have run,
// because they often make their next call at once, and it should be in the batch. They are runnable or have given up,
// so the wait is as short as the scheduler makes it.
func (s *Store) run(sh *shard, q *queue) {
	for {
		b := sh.take(q)
		switch {
		case b == nil:
			return
		case b.books:
			s.bookAll(sh, b)
		default:
			q.refused = b.decide(s.next, q.refused)
		}
		b.left.Wait()
	}
}
