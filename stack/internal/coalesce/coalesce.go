package coalesce

import (
	"context"
	"errors"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"

	"example.com/sash/driver"
)

const shards = 64 // a power of two

// mostBookings is the most bookings of a batch: redisstore makes a round trip for as many, less than a millisecond of Redis.
const mostBookings = 64

// A Store decides concurrent calls together. It is safe for concurrent use and has nothing to close: it
// holds only waiting calls, and its goroutine for a key ends when no call waits for the key.
type Store struct {
	driver.Passthrough
	apart  bool     // do not join calls
	each   bool     // the store decides many bookings of a key in a round trip
	many   gatherer // decides many keys in a round trip; nil if the store decides one key at a time
	seed   maphash.Seed
	shards [shards]shard

	mu     sync.Mutex
	places map[int]*place // guarded by mu
}

// A gatherer is a store that carries out charges of different subjects in one round trip, in mode Each. Their policies may differ.
type gatherer interface {
	driver.Store
	// Gathers reports whether an operation can travel with others, and the place that carries it out. Operations of one place travel
	// together. Servers that can fail or hang by themselves are different places. There are few places, because all are remembered.
	Gathers(op *driver.Op) (place int, ok bool)
}

// New returns a store that decides through next. It panics if next is nil.
func New(next driver.Store) *Store {
	if driver.Nil(next) {
		panic("coalesce: New needs a store to decide with, such as memstore.New(nil)")
	}
	s := &Store{Passthrough: driver.Passthrough{Store: next}, seed: maphash.MakeSeed(), places: make(map[int]*place)}
	s.apart, s.each = next.Powers()&driver.Substitutes != 0, next.Powers()&driver.CanEach != 0
	if !s.apart {
		s.many, _ = driver.Behind[gatherer](next)
	}
	for i := range s.shards {
		s.shards[i].lines = make(map[subject]*line)
	}
	return s
}

// A shard holds the keys that have a decision in flight.
type shard struct {
	mu    sync.Mutex
	lines map[subject]*line // guarded by mu
}

// A subject is a key. Its bookings are another, so that no plain call waits for them.
type subject struct {
	key   string
	books bool
}

// A line is the calls of one subject that wait for the decision in flight.
type line struct {
	queue
	of      subject
	shard   *shard
	refused bool // the last answer was a refusal; owned by the goroutine that decides
}

// Do implements [driver.Store]. A call whose ctx ends before its decision begins is not charged.
func (s *Store) Do(ctx context.Context, b *driver.Batch) (err error) {
	op := &b.Ops[0]
	if len(b.Ops) > 1 || op.Kind != driver.Charge || op.ID != "" {
		return s.Store.Do(ctx, b)
	}
	b.Chosen = 0
	of := subject{op.Key, op.Within > 0}
	if s.apart || op.Cost == 0 || op.Partial || op.Policy.Block.Refusals > 0 || op.Policy.CountRefused || of.books && !s.each {
		return s.gather(ctx, b)
	}
	sh := &s.shards[maphash.String(s.seed, op.Key)&(shards-1)]
	sh.mu.Lock()
	l := sh.lines[of]
	if l == nil {
		l = &line{queue: queue{mu: &sh.mu}, of: of, shard: sh}
		sh.lines[of] = l
		if !of.books {
			sh.mu.Unlock()
			defer s.leave(l)
			err = s.gather(ctx, b)
			l.refused = err == nil && !op.Answer.Allowed()
			return err
		}
		go s.run(l)
	}
	c := l.join(ctx, op.Request)
	sh.mu.Unlock()
	op.Answer, err = l.await(c)
	return err
}

// leave ends a caller's own decision. A goroutine decides the calls that have queued since.
func (s *Store) leave(l *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) == 0 {
		delete(l.shard.lines, l.of)
		return
	}
	go s.run(l)
}

// run decides batch after batch until no call waits. It takes a batch when all callers of the last one have resumed or given
// up, because they often make their next call at once, and that call should be in the batch.
func (s *Store) run(l *line) {
	for b := l.next(); b != nil; b = l.next() {
		b.guard(func() {
			if l.of.books {
				s.decideEach(b)
			} else {
				l.refused = b.decide(s.gather, l.refused)
			}
		})
		b.left.Wait()
	}
}

// next takes the next batch, of calls with equal policies. If no call waits it removes the line and returns nil.
func (l *line) next() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) == 0 {
		delete(l.shard.lines, l.of)
		return nil
	}
	n, most := 1, len(l.calls)
	if l.of.books {
		most = min(most, mostBookings)
	}
	for n < most && l.calls[0].req.Policy.Equal(l.calls[n].req.Policy) {
		n++
	}
	return l.take(n)
}

// decideEach answers calls of different keys, or bookings of one key, by one batch of the store. An error of the batch fails all calls.
func (s *Store) decideEach(b *batch) {
	asked := driver.Batch{Mode: driver.Each, Ops: make([]driver.Op, len(b.open))}
	for i, c := range b.open {
		asked.Ops[i].Request = c.req
	}
	if err := asked.Do(b.ctx, s.Store); err != nil {
		b.fail(err)
		return
	}
	for i, c := range b.open {
		c.reply(asked.Ops[i].Answer, asked.Ops[i].Err)
	}
}

// mostGathered is the most calls of different keys in a round trip. It bounds how long they keep a store busy while others wait.
const mostGathered = 16

// mostTrips is how many round trips to a place may be in flight before calls wait for one of them. With fewer, a process
// with few concurrent calls loses more by waiting than it saves, and calls take longer: see docs/decisions/0029.
const mostTrips = 8

// A place is where calls of different keys are decided together: see gatherer.
type place struct {
	queue        // its mu is the store's, and guards all of it
	trips   int  // round trips under way
	departs bool // one of them is about to take the calls that wait
}

// gather has the store carry out a batch of one call, together with calls of other keys that go to the same place. The call leaves
// with the next round trip: at once if fewer than mostTrips are in flight, or once enough calls wait to fill a round trip.
func (s *Store) gather(ctx context.Context, b *driver.Batch) error {
	op, n, gathers := &b.Ops[0], 0, false
	if s.many != nil {
		n, gathers = s.many.Gathers(op)
	}
	if !gathers {
		return s.Store.Do(ctx, b)
	}
	s.mu.Lock()
	p := s.places[n]
	if p == nil {
		p = &place{queue: queue{mu: &s.mu}}
		s.places[n] = p
	}
	if slices.ContainsFunc(p.calls, func(o *call) bool { return o.req.Key == op.Key }) { // such as a peek: no key goes twice
		s.mu.Unlock()
		return s.Store.Do(ctx, b)
	}
	c := p.join(ctx, op.Request)
	if len(p.calls)%mostGathered == 0 || p.trips < mostTrips && !p.departs {
		p.trips++
		p.departs = true
		go s.travel(p)
	}
	s.mu.Unlock()
	answer, err := p.await(c)
	if errors.Is(err, driver.ErrApart) {
		return s.Store.Do(ctx, b)
	}
	op.Answer = answer
	return err
}

// travel makes round trips until no call waits. It first lets other goroutines run, whose calls can then join.
func (s *Store) travel(p *place) {
	runtime.Gosched()
	for b := p.next(); b != nil; b = p.next() {
		b.guard(func() { s.decideEach(b) })
	}
}

// next takes the calls that wait. If none does, it ends a round trip and returns nil.
func (p *place) next() *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.departs = false
	if len(p.calls) == 0 {
		p.trips--
		return nil
	}
	return p.take(min(len(p.calls), mostGathered))
}
