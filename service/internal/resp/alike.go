package resp

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"example.com/sash/service/internal/decide"
)

// A turn is where a decision stands among those of commands that are alike.
type turn struct {
	at        time.Time // by the store's clock; zero is no decision
	refused   bool
	remaining int64
}

// turnOf returns the turn of an answer.
func turnOf(a *decide.Answer) turn {
	t := turn{at: a.At, refused: a.Refused}
	if tightest, ok := a.Tightest(); ok {
		t.remaining = tightest.Remaining
	}
	return t
}

// compare orders turns as the decisions were made. Of those of one instant the admitted ones came first, and each left less.
func (t turn) compare(o turn) int {
	switch {
	case t.at.IsZero() != o.at.IsZero():
		return order(o.at.IsZero())
	case !t.at.Equal(o.at):
		return t.at.Compare(o.at)
	case t.refused != o.refused:
		return order(o.refused)
	}
	return int(min(max(o.remaining-t.remaining, -1), 1))
}

func order(first bool) int {
	if first {
		return -1
	}
	return 1
}

// inOrder makes the decisions of one subject in their order. Those of commands that follow one another and are alike are
// made beside one another, so that the store decides them together, and each gets the reply of its turn. Any of them could
// have been decided first, so these are the replies of decisions in the order of the commands.
func (c *conn) inOrder(ctx context.Context, all []decision, replies []reply, lane []int) {
	for len(lane) > 0 {
		n := 1
		for first := all[lane[0]].written; first != nil && n < len(lane) && slices.EqualFunc(first, all[lane[n]].written, bytes.Equal); {
			n++
		}
		c.alike(ctx, all, replies, lane[:n])
		lane = lane[n:]
	}
}

// alike makes the decisions of commands that are alike.
func (c *conn) alike(ctx context.Context, all []decision, replies []reply, same []int) {
	type outcome struct {
		turn
		reply
	}
	outcomes := make([]outcome, len(same))
	decide := func(k int) {
		i := same[k]
		outcomes[k].reply = replies[i]
		c.safely(&outcomes[k].reply, func(out *reply) { outcomes[k].turn = all[i].make(ctx, out) })
	}
	var beside sync.WaitGroup
	for k := range same[1:] {
		c.beside(&beside, func() { decide(k + 1) })
	}
	decide(0)
	beside.Wait()
	slices.SortStableFunc(outcomes, func(a, b outcome) int { return a.compare(b.turn) })
	for k, i := range same {
		replies[i] = outcomes[k].reply
	}
}
