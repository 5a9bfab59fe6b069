package coalesce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"example.com/sash/driver"
)

// mostTrips is how many round trips to a place are under way before calls wait for one of them. With fewer, a process with
// few calls at a time spends more on waiting than it saves, and a call waits longer: see docs/decisions/0029.
const mostTrips = 8

// A gatherer is the store behind the queues of the keys. It decides calls of different keys together.
type gatherer struct {
	driver.Gatherer
	calls *sync.Pool

	mu     sync.Mutex
	places map[int]*place // guarded by mu
}

// A place is where calls are decided together: see [driver.Gatherer]. Calls wait only while mostTrips are under way.
type place struct {
	trips   int     // guarded by the gatherer's mu: round trips under way
	departs bool    // guarded by the gatherer's mu: one of them is about to take those that wait
	calls   []*call // guarded by the gatherer's mu: those that wait, in order of arrival
}

// Decide implements [driver.Store].
func (g *gatherer) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	n, ok := g.Gathers(&req)
	if !ok {
		return g.Gatherer.Decide(ctx, req)
	}
	g.mu.Lock()
	p := g.place(n)
	if p.trips < mostTrips {
		p.trips++
		g.mu.Unlock()
		defer g.leave(p)
		return g.Gatherer.Decide(ctx, req)
	}
	if p.waitsFor(req.Key) {
		g.mu.Unlock()
		return g.Gatherer.Decide(ctx, req)
	}
	c := g.calls.Get().(*call)
	c.ctx, c.req = ctx, req
	g.join(p, c)
	g.mu.Unlock()
	answer, err := g.await(p, c)
	if errors.Is(err, driver.ErrApart) {
		return g.Gatherer.Decide(ctx, req)
	}
	return answer, err
}

// place returns a place. The caller holds mu.
func (g *gatherer) place(n int) *place {
	p := g.places[n]
	if p == nil {
		p = &place{}
		g.places[n] = p
	}
	return p
}

// waitsFor reports whether a call of a key waits that is not added up with others, such as a peek. The caller holds the
// gatherer's mu.
func (p *place) waitsFor(key string) bool {
	return slices.ContainsFunc(p.calls, func(o *call) bool { return o.req.Key == key })
}

// join adds a call to those that wait for a place. The caller holds mu.
func (g *gatherer) join(p *place, c *call) {
	p.calls = append(p.calls, c)
	if len(p.calls) == driver.MaxGather { // no more fit: they need not wait
		p.trips++
		go g.run(p, take(p))
	}
}

// take removes the waiting calls of a place for a round trip. The caller holds mu.
func take(p *place) *batch {
	p.departs = false
	b := newBatch(slices.Clone(p.calls), false)
	clear(p.calls)
	p.calls = p.calls[:0]
	return b
}

// leave ends the round trip of a call by itself. A goroutine decides the calls that wait, so that the caller has its
// answer at once.
func (g *gatherer) leave(p *place) {
	if b := g.next(p); b != nil {
		go g.run(p, b)
	}
}

// next returns the calls that wait for the round trip that is over, and begins another for them. It returns nil if none
// do.
func (g *gatherer) next(p *place) *batch {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(p.calls) == 0 {
		p.trips--
		p.departs = false
		return nil
	}
	return take(p)
}

// run decides batch after batch until no call waits.
func (g *gatherer) run(p *place, b *batch) {
	for b != nil {
		g.decideMany(b)
		b = g.next(p)
	}
}

// decideMany answers every call, whatever the store does.
func (g *gatherer) decideMany(b *batch) {
	defer b.cancel()
	defer func() {
		if p := recover(); p != nil {
			b.fail(fmt.Errorf("coalesce: the store panicked: %v", p))
		}
	}()
	if len(b.open) == 1 {
		answer, err := g.Gatherer.Decide(b.ctx, b.open[0].req)
		b.open[0].reply(answer, err)
		return
	}
	reqs := make([]driver.Request, len(b.open))
	for i, c := range b.open {
		reqs[i] = c.req
	}
	answers, errs := g.DecideMany(b.ctx, reqs)
	if len(answers) != len(reqs) || len(errs) != len(reqs) {
		b.fail(fmt.Errorf("coalesce: the store returned %d answers and %d errors to %d requests", len(answers), len(errs), len(reqs)))
		return
	}
	for i, c := range b.open {
		if c.started != nil && errors.Is(errs[i], driver.ErrApart) {
			go g.alone(c)
			continue
		}
		c.reply(answers[i], errs[i])
	}
}

// await waits for the answer to a call, or until its caller leaves.
func (g *gatherer) await(p *place, c *call) (driver.Answer, error) {
	select {
	case <-c.done:
		c.batch.leave()
		answer, err := c.answer, ended(c.ctx, c.err)
		*c = call{done: c.done}
		g.calls.Put(c)
		return answer, err
	case <-c.ctx.Done():
		g.giveUp(p, c)
		return driver.Answer{}, c.ctx.Err()
	}
}

// giveUp removes a call whose caller leaves.
func (g *gatherer) giveUp(p *place, c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.batch == nil {
		p.calls = slices.DeleteFunc(p.calls, func(o *call) bool { return o == c })
		return
	}
	c.batch.leave()
}
