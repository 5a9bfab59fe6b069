package failover

import (
	"context"

	"example.com/sash/driver"
)

// Books implements [driver.Booker]: it reports whether the store behind it books.
func (s *Store) Books(p *driver.Policy) bool { return driver.CanBook(s.store, p) }

// forgo gives back what the store books after the failure mode has answered otherwise: no caller knows of that place, and
// those behind it would wait for nothing. booked returns the late requests that nobody knows of, and their answers.
func forgo[T any](ctx context.Context, g *guard, out *outcome[T], first driver.Request, booked func(T) ([]driver.Request, []driver.Answer)) {
	store, ok := g.store.(driver.Settler)
	if !ok || out.late == nil || first.Within == 0 || !first.MaySettle {
		return
	}
	out.late.ends(func(value T, err error) {
		if err != nil {
			return
		}
		reqs, late := booked(value)
		if !admitted(late) {
			return
		}
		for i, req := range reqs[:min(len(reqs), len(late))] {
			set := driver.Settlement{Request: req, At: late[i].At, Delay: late[i].Delay, Source: late[i].Source}
			askWith(context.WithoutCancel(ctx), g, g.of(req.Key, req.Policy), false, nil, nil, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, store.Settle(ctx, set)
			})
		}
	})
}
