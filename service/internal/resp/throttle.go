package resp

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// cellError has the words of redis-cell. They have no code.
func cellError(text string) *refusal { return &refusal{"Cell", "error: " + text} }

// throttled reads CL.THROTTLE key max_burst count period [quantity], as the module redis-cell has it. It is decided by a
// window that slides: see slidingLimit.
func throttled(c *conn, args [][]byte) (decision, error) {
	if len(args) != 4 && len(args) != 5 {
		return decision{}, cellError("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
	}
	numbers := [4]int64{3: 1}
	for i, arg := range args[1:] {
		var err error
		if numbers[i], err = strconv.ParseInt(string(arg), 10, 64); err != nil {
			return decision{}, cellError("Couldn't parse as integer: " + clip(string(arg)))
		}
	}
	limit, err := slidingLimit(numbers[0], numbers[1], numbers[2])
	if err != nil {
		return decision{}, err
	}
	key, quantity := string(args[0]), numbers[3]
	if err := checkKey(key); err != nil {
		return decision{}, err
	}
	if quantity < 0 {
		return decision{}, cellError("quantity must not be negative: SASH.RESERVE and SASH.SETTLE give units back")
	}
	if _, err := c.permit(decide.OfRequest, access.Decide|access.Bring(&limit)); err != nil {
		return decision{}, err
	}
	cost := max(quantity, 1)
	req := decide.Given(key, []sash.Limit{limit}, &cost)
	req.Port = decide.RESP
	return decision{c.handler.decider.Subject(&req), &wire.Undecided, func(ctx context.Context, out *reply) error {
		return c.handler.throttle(ctx, req, limit.Units, quantity, out)
	}}, nil
}

// slidingLimit returns the limit of CL.THROTTLE: as many units as redis-cell admits at once, max_burst and one, in the time
// in which it admits as many again, at count in a period of seconds. So no window has more, the rate over a long time is
// the same, and callers that are evenly as fast as the rate are never refused. The window is rounded up.
func slidingLimit(maxBurst, count, period int64) (sash.Limit, error) {
	switch {
	case maxBurst < 0 || maxBurst >= sash.MaxUnits:
		return sash.Limit{}, cellError(fmt.Sprintf("max_burst is 0 to %d", int64(sash.MaxUnits)-1))
	case count < 1:
		return sash.Limit{}, cellError("count per period must be at least 1")
	case period < 1 || period > int64(sash.MaxWindow/time.Second):
		return sash.Limit{}, cellError(fmt.Sprintf("period is 1 to %d seconds", int64(sash.MaxWindow/time.Second)))
	}
	longest, shortest := uint64(sash.MaxWindow/time.Microsecond), uint64(sash.MinWindow/time.Microsecond)
	window := longest + 1
	if high, low := bits.Mul64(uint64(period)*uint64(time.Second/time.Microsecond), uint64(maxBurst)+1); high < uint64(count) {
		whole, rest := bits.Div64(high, low, uint64(count))
		if window = whole; rest > 0 && whole <= longest {
			window++
		}
	}
	if window < shortest || window > longest {
		return sash.Limit{}, cellError(fmt.Sprintf("%d units at %d in %d s are a window of less than %v or more than %v",
			maxBurst+1, count, period, sash.MinWindow, sash.MaxWindow))
	}
	return sash.Limit{Units: maxBurst + 1, Window: time.Duration(window) * time.Microsecond}, nil
}

// throttle answers with the five integers of redis-cell. A quantity of 0 looks, and one above the limit is refused for
// ever, which retry_after says as -1. Seconds are rounded up, so that who waits for them does not come too early.
func (h *Handler) throttle(ctx context.Context, req decide.Request, limit, quantity int64, out *reply) error {
	var answers []decide.Answer
	var err error
	never := false
	if quantity > 0 {
		answers, err = h.decider.Decide(ctx, req)
		never = errors.Is(err, sash.ErrCostAboveLimit)
	}
	if quantity == 0 || never {
		req.Parts[0].Cost = 1
		answers, err = h.decider.Peek(ctx, req)
	}
	if err != nil {
		return err
	}
	a := &answers[0]
	refused := never || quantity > 0 && a.Refused
	retry := int64(-1)
	if refused && !never {
		retry = wire.Seconds(a.RefusedBy.RetryAfter).RoundUp()
	}
	tightest, _ := a.Tightest()
	out.list('*', 5)
	out.flag(refused)
	for _, n := range []int64{limit, tightest.Remaining, retry, wire.Seconds(tightest.ResetAfter).RoundUp()} {
		out.number(n)
	}
	return nil
}
