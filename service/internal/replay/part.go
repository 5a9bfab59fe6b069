package replay

import (
	"context"
	"time"
)

// builder returns an empty Builder that may use as much memory as that of the trace.
func (t *Trace) builder() *Builder { return &Builder{Memory: t.memory, Folder: t.events.folder} }

// selection returns a request as it was added.
func (t *Trace) selection(e *event) Selection {
	c := &t.clients[e.client]
	return Selection{Key: c.name, Cost: e.cost, Route: t.routes[e.route], Rule: c.rule, Class: e.class}
}

// part returns the trace of some requests. The caller closes it.
func (t *Trace) part(ctx context.Context, keep func(*event) bool) (*Trace, error) {
	b := t.builder()
	err := t.each(ctx, func(e *event) error {
		if keep(e) {
			b.Add(e.at, t.selection(e))
		}
		return b.Err()
	})
	part := b.Trace()
	if err == nil {
		err = part.err
	}
	if err != nil {
		part.Close()
		return nil, err
	}
	return part, nil
}

// Between returns the trace of the requests from one time until before another. It may take as much memory as the
// [Builder] of the trace. The caller closes it. The error is that of the context or the trace.
func (t *Trace) Between(ctx context.Context, from, until time.Time) (*Trace, error) {
	first, end := from.UnixMicro(), until.UnixMicro()
	return t.part(ctx, func(e *event) bool { return e.at >= first && e.at < end })
}
