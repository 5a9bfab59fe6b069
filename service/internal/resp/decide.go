package resp

import (
	"context"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// asks reads a command that asks for units, and checks that its caller may.
func (c *conn) asks(args [][]byte, takes ...string) (decide.Request, error) {
	a, err := parse(args, takes...)
	if err != nil {
		return decide.Request{}, err
	}
	need := access.Decide
	if len(a.limits) > 0 {
		need |= access.Override
	}
	req := a.request()
	return req, c.permit(req.Domain, need)
}

// allow reads SASH.ALLOW.
func allow(c *conn, args [][]byte) (decision, error) {
	req, err := c.asks(args, "ID")
	if err != nil {
		return decision{}, err
	}
	h := c.handler
	return decision{h.decider.Subject(&req), func(ctx context.Context, out *reply) {
		ctx, cancel := h.within(ctx)
		defer cancel()
		answers, err := h.decider.Decide(ctx, req)
		if err != nil {
			h.refuse(out, err)
			return
		}
		d := wire.AnswerOf(&answers[0])
		d.Waits(&req, &answers[0])
		out.decision(&d)
	}}, nil
}
