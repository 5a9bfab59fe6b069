package replay

import (
	"context"
	"time"
)

// selection returns a request as it was added.
func (t *Trace) selection(e *event) Selection {
	c := &t.clients[e.client]
	return Selection{Key: c.name, Cost: e.cost, Route: t.routes[e.route], Rule: c.rule}
}

// part returns the trace of some requests.
func (t *Trace) part(ctx context.Context, keep func(*event) bool) (*Trace, error) {
	var b Builder
	err := t.each(ctx, func(e *event) error {
		if keep(e) {
			b.Add(e.at, t.selection(e))
		}
		return nil
	})
	return b.Trace(), err
}

// Between returns the trace of the requests from one time until before another. The error is
// the context's.
func (t *Trace) Between(ctx context.Context, from, until time.Time) (*Trace, error) {
	first, end := from.UnixMicro(), until.UnixMicro()
	return t.part(ctx, func(e *event) bool { return e.at >= first && e.at < end })
}
