package resp

import (
	"context"
	"strconv"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// A decision is a command that asks the store.
type decision struct {
	subject string                                      // commands with the same one are in order
	silent  *wire.Silence                               // what a store that does not answer means for it
	make    func(ctx context.Context, out *reply) error // writes a reply unless it returns an error
}

// reads returns how a command that asks for units is read: with options beside those that all have. Its reply is a
// decision.
func reads(silent *wire.Silence, by func(context.Context, *Handler, *decide.Request) (wire.Decision, error), takes ...string) func(*conn, [][]byte) (decision, error) {
	return func(c *conn, args [][]byte) (decision, error) {
		req, err := c.asks(args, access.Decide, takes...)
		if err != nil {
			return decision{}, err
		}
		return decision{c.handler.decider.Subject(&req), silent, func(ctx context.Context, out *reply) error {
			d, err := by(ctx, c.handler, &req)
			if err == nil {
				out.decision(&d)
			}
			return err
		}}, nil
	}
}

// allow decides SASH.ALLOW.
func allow(ctx context.Context, h *Handler, req *decide.Request) (d wire.Decision, err error) {
	answers, err := h.decider.Decide(ctx, *req)
	if err != nil {
		return d, err
	}
	return wire.DecisionOn(req, &answers[0]), nil
}

// book decides SASH.BOOK: a command that waits for its turn, which its reply says.
func book(ctx context.Context, h *Handler, req *decide.Request) (d wire.Decision, err error) {
	if req.Within == 0 {
		return d, wrong("syntax error: give WITHIN seconds, the longest that the caller can wait, above 0")
	}
	return allow(ctx, h, req)
}

// peek decides SASH.PEEK.
func peek(ctx context.Context, h *Handler, req *decide.Request) (d wire.Decision, err error) {
	answers, err := h.decider.Peek(ctx, *req)
	if err != nil {
		return d, err
	}
	return wire.AnswerOf(&answers[0]), nil
}

// reserve decides SASH.RESERVE.
func reserve(ctx context.Context, h *Handler, req *decide.Request) (d wire.Decision, err error) {
	answer, reservation, err := h.decider.Reserve(ctx, *req)
	if err != nil {
		return d, err
	}
	d = wire.DecisionOn(req, &answer)
	if reservation != nil {
		d.Token = h.opts.Tokens.Seal(reservation)
	}
	return d, nil
}

// settle reads SASH.SETTLE token used. Those of one token are in order.
func settle(c *conn, args [][]byte) (decision, error) {
	used, err := strconv.ParseInt(string(args[1]), 10, 64)
	if len(args) != 2 || err != nil {
		return decision{}, wrong("syntax error: give the token and the units that were used, 0 to give all of them back")
	}
	token, h := string(args[0]), c.handler
	return decision{token, &wire.Unsettled, func(ctx context.Context, out *reply) error {
		err := h.opts.Tokens.Settle(ctx, h.decider, h.opts.Now(), token, used, func(domain string) error { return c.permit(domain, access.Decide) })
		if err == nil {
			out.status("OK")
		}
		return err
	}}, nil
}

var unforgotten = wire.Silence{
	Unknown:  "the store did not answer: whether the subject was reset is not known; send this again",
	NotAsked: "the store was not asked: nothing was reset; send this again",
}

// forget answers SASH.RESET. It gives back what any caller was charged, and so needs the right to refund.
func forget(ctx context.Context, c *conn, args [][]byte) error {
	req, err := c.asks(args, access.Refund)
	if err == nil && !req.Parts[0].ByRule {
		err = wrong("syntax error: SASH.RESET forgets all charges, and takes no COST")
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.handler.opts.Timeout)
	defer cancel()
	if err = c.handler.decider.ResetFor(ctx, req); err != nil {
		return c.handler.refusal(err, &unforgotten)
	}
	c.out.status("OK")
	return nil
}
