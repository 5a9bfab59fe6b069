package failover

import (
	"context"
	"crypto/rand"

	"example.com/sash/driver"
)

// owe records local admissions, which are written to the store when it is back. While the store may still charge the
// call itself, owe waits for that in the background.
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
		case err == nil && charged(value): // do not charge it again
		case err == nil, answers(err), g.kind(err) != Unknown:
			note()
		default:
			for _, req := range reqs {
				g.local.doubtful.Add(req.Cost)
			}
		}
	})
}

// repay writes the backlog to the store in the background.
func (g *guard) repay() {
	if g.local != nil && g.local.backlog.start() {
		go g.payAll()
	}
}

// payAll writes the backlog until it is empty or a write fails. A pause follows a failure, so that a store that rejects
// only these writes does not get one with every answer.
func (g *guard) payAll() {
	l := g.local
	for apart := 0; g.anyUp(); {
		d, ok := l.backlog.take()
		if !ok {
			return
		}
		if g.part(d.req).now() != Up { // only another part is up
			l.lost.Add(l.backlog.keep(d))
			if apart++; apart == atOnce { // the order is random
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

// keep restores a due that was taken and not tried. It returns the units that there is no room for.
func (b *backlog) keep(d due) (lost int64) {
	if d.id != "" {
		return b.addCall(call{subjectOf(d.req.Key, d.req.Policy), d.id}, d.req, d.at)
	}
	return b.putBack(d)
}

// payOne writes one due and reports whether the store worked. A due that was certainly not charged is kept for later.
// One that may have been charged is not written again, and neither is one that the store rejects for a
// misconfiguration: it would fail again and again.
func (g *guard) payOne(d due) bool {
	if d.id != "" {
		return g.payCall(d)
	}
	l := g.local
	paid, failed, kind := g.pay(d.req)
	l.written.Add(paid)
	if failed && paid == 0 && kind == Unsent { // also if too many calls are in flight
		l.lost.Add(l.backlog.putBack(d))
	} else {
		l.lost.Add(d.req.Cost - paid)
	}
	return !failed
}

// pay charges units to the store, whether or not there is room for them, and returns how many it charged. If the store
// failed, kind is the kind of failure. A call's cost is at most a limit's units, so pay adds the rest by settling the charge.
func (g *guard) pay(req driver.Request) (paid int64, failed bool, kind Kind) {
	total := req.Cost
	for _, l := range req.Policy.Limits {
		req.Cost = min(req.Cost, l.Units)
	}
	req.Policy = forced(req.Policy)
	out := ask(context.Background(), g, g.part(req), decided, func(ctx context.Context) (driver.Answer, error) {
		return g.store.Decide(ctx, req)
	})
	if out.failed || out.err != nil {
		return 0, out.failed, out.kind
	}
	settler, ok := g.store.(driver.Settler)
	if !ok || total == req.Cost {
		return req.Cost, false, Unknown
	}
	set := driver.Settlement{Request: req, At: out.value.At, Source: out.value.Source, Units: total, ID: rand.Text()}
	for range 3 { // a settlement may be repeated
		settled := ask(context.Background(), g, g.part(req), nil, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, settler.Settle(ctx, set)
		})
		if !settled.failed && settled.err == nil {
			return total, false, Unknown
		}
	}
	return req.Cost, true, Unknown
}
