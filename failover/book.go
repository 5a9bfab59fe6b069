package failover

import (
	"context"

	"example.com/sash/driver"
)

// Books implements [driver.Booker]: it reports whether the store behind it books.
func (s *Store) Books(p *driver.Policy) bool { return driver.CanBook(s.store, p) }

// forgo gives back what the store books after the failure mode has answered otherwise: no caller knows of that place, and
// those behind it would wait for nothing.
func forgo[T any](ctx context.Context, g *guard, out *outcome[T], reqs []driver.Request, answers func(T) []driver.Answer) {
	store, ok := g.store.(driver.Settler)
	if !ok || out.late == nil || reqs[0].Within == 0 || !reqs[0].MaySettle {
		return
	}
	out.late.ends(func(value T, err error) {
		if err != nil {
			return
		}
		late := answers(value)
		if !admitted(late) {
			return
		}
		for i, req := range reqs[:min(len(reqs), len(late))] {
			set := driver.Settlement{Request: req, At: late[i].At, Delay: late[i].Delay, Source: late[i].Source}
			askWith(context.WithoutCancel(ctx), g, g.of(req.Key, req.Policy), false, nil, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, store.Settle(ctx, set)
			})
		}
	})
}
