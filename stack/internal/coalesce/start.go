package coalesce

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"example.com/sash/driver"
)

var _ driver.Starter = (*Store)(nil)

// A started call has no goroutine that waits. It is the first of its key, which has a place, or waits in the key's queue.
type started struct {
	of    *Store
	then  func(driver.Answer, error)
	shard *shard
	queue *queue
	place *place
	gone  atomic.Bool // it was answered, or its caller has left
}

// Start implements [driver.Starter], for plain calls that a store behind it gathers.
func (s *Store) Start(ctx context.Context, req driver.Request, done func(driver.Answer, error)) driver.Started {
	g, ok := s.next.(*gatherer)
	if !ok || s.straight(&req) || req.Within > 0 {
		return nil
	}
	n, ok := g.Gathers(&req)
	if !ok {
		return nil
	}
	sh := s.shard(req.Key)
	c := &call{ctx: ctx, req: req, started: &started{of: s, then: done, shard: sh}}
	sh.mu.Lock()
	q := sh.plain[req.Key]
	first := q == nil
	if first {
		q = &queue{key: req.Key, in: sh.plain}
		sh.plain[req.Key] = q
	} else {
		q.calls = append(q.calls, c)
	}
	c.started.queue = q
	sh.mu.Unlock()
	if first {
		g.start(n, c)
	}
	return c
}

// start has a call go with the next round trip to a place.
func (g *gatherer) start(n int, c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.place(n)
	c.started.place = p
	if p.waitsFor(c.req.Key) {
		p.trips++
		go g.run(p, newBatch([]*call{c}, false))
		return
	}
	g.join(p, c)
	if len(p.calls) > 0 && !p.departs && p.trips < mostTrips {
		p.trips++
		p.departs = true
		go g.depart(p)
	}
}

// depart makes a round trip, with the calls of those who are about to make one.
func (g *gatherer) depart(p *place) {
	runtime.Gosched()
	g.run(p, g.next(p))
}

// alone decides a started call by itself, which could not be decided with others.
func (g *gatherer) alone(c *call) {
	b := &batch{open: []*call{c}}
	b.ctx, b.cancel = c.ctx, func() {}
	g.decideMany(b)
}

// end answers a started call. As the first of its key it makes way for those that wait.
func (c *call) end(answer driver.Answer, err error) {
	c.leave()
	if s := c.started; s.place != nil {
		s.queue.refused = err == nil && !answer.Allowed()
		s.of.leave(s.shard, s.queue)
	}
	c.started.then(answer, err)
}

// leave notes once that a started call was answered, or that its caller has left.
func (c *call) leave() {
	if c.started.gone.CompareAndSwap(false, true) && c.batch != nil {
		c.batch.leave()
	}
}

// Leave implements [driver.Started].
func (c *call) Leave() {
	var mu *sync.Mutex
	var waiting *[]*call
	if s := c.started; s.place != nil {
		mu, waiting = &s.of.next.(*gatherer).mu, &s.place.calls
	} else {
		mu, waiting = &s.shard.mu, &s.queue.calls
	}
	mu.Lock()
	at := slices.Index(*waiting, c)
	if at >= 0 {
		*waiting = slices.Delete(*waiting, at, at+1)
	}
	mu.Unlock()
	if at >= 0 {
		c.end(driver.Answer{}, cmp.Or(c.ctx.Err(), context.Canceled)) // an answer without an error would admit the call
	} else {
		c.leave()
	}
}
