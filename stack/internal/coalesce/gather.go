package coalesce

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"example.com/sash/driver"
)

// mostTrips is how many round trips to a place are under way before calls wait for one of them. With fewer, a process with
// few calls at a time spends more on waiting than it saves, and a call waits longer: see docs/decisions/0029.
const mostTrips = 8

// A place is where calls of different keys are decided together: see [driver.Gatherer].
type place struct {
	queue        // its mu is the store's, and guards all of it
	trips   int  // round trips under way
	departs bool // one of them is about to take the calls that wait
}

// gather decides a call through the store, with calls of other keys if they go to the same place. It leaves with the next
// round trip, which is at once while fewer than mostTrips are under way, or as many calls wait as one takes.
func (s *Store) gather(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if s.many == nil {
		return s.Next.Decide(ctx, req)
	}
	n, ok := s.many.Gathers(&req)
	if !ok {
		return s.Next.Decide(ctx, req)
	}
	s.mu.Lock()
	p := s.places[n]
	if p == nil {
		p = &place{queue: queue{mu: &s.mu}}
		s.places[n] = p
	}
	if slices.ContainsFunc(p.calls, func(o *call) bool { return o.req.Key == req.Key }) { // such as a peek: no key goes twice
		s.mu.Unlock()
		return s.Next.Decide(ctx, req)
	}
	c := p.join(ctx, req)
	if len(p.calls)%driver.MaxGather == 0 || p.trips < mostTrips && !p.departs {
		p.trips++
		p.departs = true
		go s.travel(p)
	}
	s.mu.Unlock()
	answer, err := p.await(c)
	if errors.Is(err, driver.ErrApart) {
		return s.Next.Decide(ctx, req)
	}
	return answer, err
}

// travel makes round trips until no call waits, the first with the calls of those who are about to make one.
func (s *Store) travel(p *place) {
	runtime.Gosched()
	for b := p.next(); b != nil; b = p.next() {
		b.guard(func() { s.decideMany(b) })
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
	return p.take(min(len(p.calls), driver.MaxGather))
}

// decideMany answers the calls of a round trip.
func (s *Store) decideMany(b *batch) {
	reqs := b.requests()
	if len(reqs) == 1 {
		b.open[0].reply(s.Next.Decide(b.ctx, reqs[0]))
		return
	}
	answers, errs := s.many.DecideMany(b.ctx, reqs)
	if len(answers) != len(reqs) || len(errs) != len(reqs) {
		b.fail(fmt.Errorf("coalesce: the store returned %d answers and %d errors to %d requests", len(answers), len(errs), len(reqs)))
		return
	}
	for i, c := range b.open {
		c.reply(answers[i], errs[i])
	}
}
