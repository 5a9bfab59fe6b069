package failover

import (
	"context"
	"time"

	"example.com/sash/driver"
)

// DecideOnce implements [driver.Deduplicator]. While the store is unavailable, mode Local remembers the ID too: it
// charges the call locally once, and writes it to the store with the ID later. So a call that is repeated after a
// failure is charged to the store once, wherever it was admitted, and it is never [Stats.Doubtful] if the store is back
// within [driver.RepeatTime]. Mode Open ignores IDs, because it charges nothing.
//
// Some calls are decided anew when they are repeated while the store is unavailable: those that cost more than this
// process's share, and those that another process received. The store decides a call anew if it refused the call when
// the call was written to it.
func (s *Store) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	store, ok := s.store.(driver.Deduplicator)
	if !ok {
		return driver.Answer{}, driver.ErrUnsupported
	}
	out := ask(ctx, s.guard, s.part(req), decided, func(ctx context.Context) (driver.Answer, error) {
		return store.DecideOnce(ctx, id, req)
	})
	if !out.failed {
		if out.err == nil {
			s.mirror(ctx, id, req, out.value.Allowed())
			s.repay()
		}
		return out.value, out.err
	}
	results, err := s.answer(ctx, id, []driver.Request{req}, out.err)
	if err != nil {
		return driver.Answer{}, err
	}
	res := results[0]
	if res.Source == driver.FromLocal && charges(req, res.Allowed()) {
		s.local.lost.Add(s.local.backlog.addCall(call{subjectOf(req.Key, req.Policy), id}, req, res.At))
	}
	return res, nil
}

// A call names a call that may be repeated.
type call struct {
	subject subject
	id      string
}

// addCall records a call that was charged locally. It returns the units that there was no room for.
func (b *backlog) addCall(of call, req driver.Request, at int64) (lost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.calls[of]; known {
		return 0
	}
	if len(b.calls) >= mostCalls {
		return req.Cost
	}
	if b.calls == nil {
		b.calls = make(map[call]due)
	}
	b.calls[of] = due{id: of.id, req: req, at: at}
	b.count()
	return 0
}

// payCall writes a call to the store, which charges it unless it did so before. It reports whether to go on.
func (g *guard) payCall(d due) bool {
	l := g.local
	store, ok := g.store.(driver.Deduplicator)
	if !ok || time.Since(time.UnixMicro(d.at)) > driver.RepeatTime-2*g.budget { // the store may have forgotten the ID
		l.doubtful.Add(d.req.Cost)
		return true
	}
	req := d.req
	req.Policy = forced(req.Policy)
	out := ask(context.Background(), g, g.part(req), decided, func(ctx context.Context) (driver.Answer, error) {
		return store.DecideOnce(ctx, d.id, req)
	})
	switch {
	case out.failed && out.kind != Misconfigured: // it may be repeated
		l.lost.Add(l.backlog.addCall(call{subjectOf(req.Key, req.Policy), d.id}, d.req, d.at))
		return false
	case out.failed || out.err != nil:
		l.lost.Add(d.req.Cost)
		return !out.failed
	}
	l.written.Add(d.req.Cost)
	return true
}
