package failover

import (
	"context"
	"crypto/rand"

	"example.com/sash/driver"
)

// owe notes what was admitted locally, so that the store is told when it is back. Where it is not known
// yet whether the store charged the call itself, that is waited for, without holding up anybody.
func owe[T any](g *guard, out *outcome[T], reqs []driver.Request, results []driver.Answer, charged func(T) bool) {
	if results[0].Source != driver.FromLocal || !admitted(results) && !reqs[0].Policy.CountRefused {
		return
	}
	note := func() {
		for i, req := range reqs {
			g.local.lost.Add(g.local.backlog.add(req, results[i].At))
		}
	}
	if out.kind != Unknown {
		note()
		return
	}
	out.late.ends(func(value T, err error) {
		switch {
		case err == nil && charged(value): // and not once more
		case err == nil, answers(err), g.kind(err) != Unknown:
			note()
		default:
			for _, req := range reqs {
				g.local.doubtful.Add(req.Cost)
			}
		}
	})
}

// repay charges the backlog to a store that answers, in the background.
func (g *guard) repay() {
	if g.local != nil && g.local.backlog.start() {
		go g.payAll()
	}
}

// payAll ends when there is nothing left to charge, or a payment fails. Then there is a pause, so that a store
// that refuses payments only is not asked for them with every answer.
func (g *guard) payAll() {
	l := g.local
	for apart := 0; g.anyUp(); {
		d, ok := l.backlog.take()
		if !ok {
			return
		}
		if g.part(d.req).now() != Up { // another part is
			l.lost.Add(l.backlog.keep(d))
			if apart++; apart == atOnce { // they come up in no order
				l.backlog.rest(g.breakers[0].draw())
				return
			}
			continue
		}
		apart = 0
		if !g.payOne(d) {
			l.backlog.rest(g.breakers[0].draw())
			return
		}
		l.backlog.calm()
	}
	l.backlog.stop()
}

// keep returns what was taken and not tried. It returns the units that there is no room for.
func (b *backlog) keep(d due) (lost int64) {
	if d.id != "" {
		return b.addCall(call{subjectOf(d.req.Key, d.req.Policy), d.id}, d.req, d.at)
	}
	return b.putBack(d)
}

// payOne charges what is due, and reports whether the store did not fail. What it certainly did not charge is
// kept for later. What may have been charged is not charged again, and neither is what the store refuses for
// a misconfiguration: that would fail again and again.
func (g *guard) payOne(d due) bool {
	if d.id != "" {
		return g.payCall(d)
	}
	l := g.local
	paid, kind := g.pay(d.req)
	l.written.Add(paid)
	switch {
	case paid == d.req.Cost:
		return true
	case paid == 0 && kind == Unsent: // also where too many calls are under way
		l.lost.Add(l.backlog.putBack(d))
	default:
		l.lost.Add(d.req.Cost - paid)
	}
	return false
}

// pay charges units to the store, whether or not there is room for them. When none were, kind is
// the kind of failure. A call's cost is at most a limit's units, so more than that is added by settling what was charged.
func (g *guard) pay(req driver.Request) (paid int64, kind Kind) {
	total := req.Cost
	for _, l := range req.Policy.Limits {
		req.Cost = min(req.Cost, l.Units)
	}
	req.Policy = forced(req.Policy)
	out := ask(context.Background(), g, g.part(req), decided, func(ctx context.Context) (driver.Answer, error) {
		return g.store.Decide(ctx, req)
	})
	if out.failed || out.err != nil {
		return 0, out.kind
	}
	settler, ok := g.store.(driver.Settler)
	if !ok || total == req.Cost {
		return req.Cost, Unknown
	}
	set := driver.Settlement{Request: req, At: out.value.At, Source: out.value.Source, Units: total, ID: rand.Text()}
	for range 3 { // a settlement may be repeated
		settled := ask(context.Background(), g, g.part(req), nil, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, settler.Settle(ctx, set)
		})
		if !settled.failed && settled.err == nil {
			return total, Unknown
		}
	}
	return req.Cost, Unknown
}
