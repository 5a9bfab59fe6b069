package resp

import (
	"context"
	"fmt"
	"strconv"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// asks reads a command that asks for units, and checks that its caller has the right to that, and to bring limits along
// if it does.
func (c *conn) asks(args [][]byte, need access.Right, takes ...string) (decide.Request, error) {
	a, err := parse(args, takes...)
	if err != nil {
		return decide.Request{}, err
	}
	if a.within != nil && *a.within > c.handler.opts.MaxWait {
		return decide.Request{}, wrong(fmt.Sprintf("WITHIN %v: it can be up to %v seconds here (sash serve --max-wait)",
			a.within.Seconds(), c.handler.opts.MaxWait.Seconds()))
	}
	if len(a.limits) > 0 {
		need |= access.Override
	}
	req := a.request()
	return req, c.permit(req.Domain, need)
}

// asked is a decision by one method of the engine, unless the command was refused.
func (c *conn) asked(req decide.Request, refused error, by func(context.Context, decide.Request) ([]decide.Answer, error), silent *wire.Silence) (decision, error) {
	return c.replied(req, refused, silent, func(ctx context.Context) (*wire.Decision, error) {
		answers, err := by(ctx, req)
		if err != nil {
			return nil, err
		}
		d := wire.DecisionOn(&req, &answers[0])
		return &d, nil
	})
}

// replied is a command whose reply is a decision, unless it was refused.
func (c *conn) replied(req decide.Request, refused error, silent *wire.Silence, by func(context.Context) (*wire.Decision, error)) (decision, error) {
	if refused != nil {
		return decision{}, refused
	}
	h := c.handler
	return decision{subject: h.decider.Subject(&req), make: func(ctx context.Context, out *reply) {
		ctx, cancel := h.within(ctx)
		defer cancel()
		d, err := by(ctx)
		if err != nil {
			h.refuseAs(out, err, silent)
			return
		}
		out.decision(d)
	}}, nil
}

// allow reads SASH.ALLOW.
func allow(c *conn, args [][]byte) (decision, error) {
	req, err := c.asks(args, access.Decide, "ID")
	return c.asked(req, err, c.handler.decider.Decide, &wire.Undecided)
}

// book reads SASH.BOOK: a command that waits for its turn, which its reply says.
func book(c *conn, args [][]byte) (decision, error) {
	req, err := c.asks(args, access.Decide, "ID", "WITHIN")
	if err == nil && req.Within == 0 {
		err = wrong("syntax error: give WITHIN seconds, the longest that the caller can wait, above 0")
	}
	return c.asked(req, err, c.handler.decider.Decide, &wire.Undecided)
}

// peek reads SASH.PEEK.
func peek(c *conn, args [][]byte) (decision, error) {
	req, err := c.asks(args, access.Decide)
	return c.asked(req, err, c.handler.decider.Peek, &wire.Unseen)
}

// reserve reads SASH.RESERVE.
func reserve(c *conn, args [][]byte) (decision, error) {
	req, err := c.asks(args, access.Decide, "ID", "WITHIN")
	return c.replied(req, err, &wire.Undecided, func(ctx context.Context) (*wire.Decision, error) {
		answer, reservation, err := c.handler.decider.Reserve(ctx, req)
		if err != nil {
			return nil, err
		}
		d := wire.DecisionOn(&req, &answer)
		if reservation != nil {
			d.Token = c.handler.opts.Tokens.Seal(reservation)
		}
		return &d, nil
	})
}

// settle reads SASH.SETTLE token used. Those of one token are in order.
func settle(c *conn, args [][]byte) (decision, error) {
	used, err := strconv.ParseInt(string(args[1]), 10, 64)
	if len(args) != 2 || err != nil {
		return decision{}, wrong("syntax error: give the token and the units that were used, 0 to give all of them back")
	}
	token, h := string(args[0]), c.handler
	return decision{subject: token, make: func(ctx context.Context, out *reply) {
		err := h.opts.Tokens.Settle(ctx, h.decider, h.opts.Now(), token, used, func(domain string) error { return c.permit(domain, access.Decide) })
		if err != nil {
			h.refuseAs(out, err, &wire.Unsettled)
			return
		}
		out.status("OK")
	}}, nil
}

var unforgotten = wire.Silence{
	Unknown:  "the store did not answer: whether the subject was reset is not known; send this again",
	NotAsked: "the store was not asked: nothing was reset; send this again",
}

// forget answers SASH.RESET. It gives back what any caller was charged, and so needs the right to refund.
func forget(ctx context.Context, c *conn, args [][]byte) {
	req, err := c.asks(args, access.Refund)
	if err == nil && !req.Parts[0].ByRule {
		err = wrong("syntax error: SASH.RESET forgets all charges, and takes no COST")
	}
	if err == nil {
		ctx, cancel := c.handler.within(ctx)
		defer cancel()
		err = c.handler.decider.ResetFor(ctx, req)
	}
	if err != nil {
		c.handler.refuseAs(&c.out, err, &unforgotten)
		return
	}
	c.out.status("OK")
}
