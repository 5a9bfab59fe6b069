package failover

import (
	"context"

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
			s.mirror(ctx, id, req, out.value.Allowed(), out.value.Delay)
		}
		return out.value, out.err
	}
	results, err := s.answer(ctx, id, []driver.Request{req}, out.err)
	if err != nil {
		return driver.Answer{}, err
	}
	res := results[0]
	if res.Source == driver.FromLocal && charges(req, res.Allowed()) {
		b := s.owed(req.Key, req.Policy)
		b.add(id, req, res.At, res.Delay)
		if out.late != nil {
			f := b.call(id, req, res.At, res.Delay)
			out.late.ends(func(driver.Answer, error) { b.end(f) })
		}
	}
	return res, nil
}
