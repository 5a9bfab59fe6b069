package coalesce

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// A call waits for a decision that a goroutine of the store makes.
type call struct {
	ctx    context.Context
	req    driver.Request
	batch  *batch        // guarded by the queue's mu; nil while it is in the queue
	done   chan struct{} // closed when answer and err are set
	answer driver.Answer
	err    error
}

func (c *call) reply(answer driver.Answer, err error) {
	c.answer, c.err = answer, err
	close(c.done)
}

// A queue is calls that wait until they are decided together, in order of arrival.
type queue struct {
	mu    *sync.Mutex
	calls []*call // guarded by mu
}

// join adds a call. The caller holds mu.
func (q *queue) join(ctx context.Context, req driver.Request) *call {
	c := &call{ctx: ctx, req: req, done: make(chan struct{})}
	q.calls = append(q.calls, c)
	return c
}

// take removes the first n calls as a batch. The caller holds mu.
func (q *queue) take(n int) *batch {
	b := &batch{open: slices.Clone(q.calls[:n])}
	q.calls = slices.Delete(q.calls, 0, n)
	for _, c := range b.open {
		c.batch = b
	}
	b.waiting.Store(int64(n))
	b.left.Add(n)
	b.ctx, b.cancel = b.context()
	return b
}

func (q *queue) await(c *call) (driver.Answer, error) {
	select {
	case <-c.done:
		c.batch.leave()
		return c.answer, ended(c.ctx, c.err)
	case <-c.ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.batch == nil {
		q.calls = slices.DeleteFunc(q.calls, func(o *call) bool { return o == c })
	} else {
		c.batch.leave()
	}
	return driver.Answer{}, c.ctx.Err()
}

// ended returns the context's error in place of an error that came at the context's deadline. A batch has the deadline of
// its last caller, and can end a moment before that caller's context.
func ended(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && err != nil && !time.Now().Before(deadline) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// A batch is calls that are decided together: of one key and with equal policies, or of different keys.
type batch struct {
	ctx     context.Context
	cancel  context.CancelFunc
	open    []*call        // not yet answered; those of the next request come first
	waiting atomic.Int64   // callers that have neither resumed since the answer nor given up
	left    sync.WaitGroup // of the same callers
}

// leave ends the wait of a caller. A batch without waiting callers is canceled.
func (b *batch) leave() {
	if b.waiting.Add(-1) == 0 {
		b.cancel()
	}
	b.left.Done()
}

// context returns the context of the batch: the values of its first call, and the latest deadline of its calls, so that
// one caller's deadline does not end the calls of others.
func (b *batch) context() (context.Context, context.CancelFunc) {
	var last time.Time
	first := context.WithoutCancel(b.open[0].ctx)
	for _, c := range b.open {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			return context.WithCancel(first)
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(first, last)
}

// guard runs decide, which answers every call, and answers the calls with an error if the store panics.
func (b *batch) guard(decide func()) {
	defer b.cancel()
	defer func() {
		if p := recover(); p != nil {
			b.fail(fmt.Errorf("coalesce: the store panicked: %v", p))
		}
	}()
	decide()
}

func (b *batch) fail(err error) {
	for _, c := range b.open {
		c.reply(driver.Answer{}, err)
	}
	b.open = nil
}

// decide answers every call of a key, and reports whether the last answer was a refusal.
//
// Each request is for the first ask calls. If there is room for all or for none, one request is enough: after a refusal the
// first call goes alone, and all calls with the same cost get its answer.
func (b *batch) decide(do func(context.Context, *driver.Batch) error, refused bool) (refusedLast bool) {
	ask := 1
	if !refused {
		ask = b.fit(b.open[0].req.Policy.MostUnits())
	}
	for len(b.open) > 0 {
		asked := driver.Batch{Ops: make([]driver.Op, 1)}
		op := &asked.Ops[0]
		op.Request = b.open[0].req
		op.Cost = sum(b.open[:ask])
		op.MaySettle = slices.ContainsFunc(b.open[:ask], func(c *call) bool { return c.req.MaySettle })
		err := b.ctx.Err() // of a batch that all callers have left
		if err == nil {
			err = do(b.ctx, &asked)
		}
		if err != nil {
			b.fail(err)
			return refused
		}
		res := op.Answer
		refused = !res.Allowed()
		switch {
		case res.Allowed():
			b.admit(ask, res)
			ask = b.fit(res.Remaining())
		case ask == 1:
			b.refuse(res, op.Cost)
		default: // nothing was charged; the next request is for fewer calls, whatever the answer says
			ask = min(b.fit(res.Remaining()), ask-1)
		}
	}
	return refused
}

// fit moves the calls that fit into the remaining units to the front, in order of arrival, and returns how many to
// request: one if none fits.
func (b *batch) fit(remaining int64) int {
	var fits, rest []*call
	for _, c := range b.open {
		to := &rest
		if c.req.Cost <= remaining {
			remaining -= c.req.Cost
			to = &fits
		}
		*to = append(*to, c)
	}
	b.open = append(fits, rest...)
	return max(1, len(fits))
}

func (b *batch) admit(n int, res driver.Answer) {
	later := sum(b.open[:n])
	for _, c := range b.open[:n] {
		later -= c.req.Cost
		var room [driver.MaxLimits]driver.Status
		statuses := room[:copy(room[:], res.Statuses())]
		for i := range statuses { // the calls that follow were charged later units, which still remain when this one is answered
			statuses[i].Remaining += later
		}
		answer := res
		answer.Set(res.At, res.Refusals, statuses)
		c.reply(answer, nil)
	}
	b.open = b.open[n:]
}

func (b *batch) refuse(res driver.Answer, cost int64) {
	b.open = slices.DeleteFunc(b.open, func(c *call) bool {
		if c.req.Cost != cost {
			return false
		}
		c.reply(res, nil)
		return true
	})
}

func sum(calls []*call) (units int64) {
	for _, c := range calls {
		units += c.req.Cost
	}
	return units
}
