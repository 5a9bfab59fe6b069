package sash

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
)

// A call whose deadline passes before the store answers is charged but not admitted, and callers that retry at once would fill the limit
// with such charges. So a call is not sent if its deadline is nearer than the median time of the store's answers. Of the calls that are
// sent, at most about half miss their deadlines.
//
// The estimate must not hold calls back when the store has become faster. So while calls are held back, one of them at a time measures a
// look at the store, which charges nothing. If the estimate falls far enough before its deadline, the call is sent after all.
const (
	lookEvery = time.Millisecond // the least time between two looks
	looking   = math.MaxInt64    // in place of the instant at which the last look ended
)

// A pace is how long the store usually takes to answer calls whose contexts have deadlines. Limiters made by With share
// it. It is safe for concurrent use: if one measurement overwrites another, that does no harm.
type pace struct {
	usual  atomic.Int64 // the median in nanoseconds; 0 is unknown
	looked atomic.Int64 // when the last look ended, in nanoseconds since the Unix epoch, or looking
}

// begin returns when a call begins, or the zero time if its context has no deadline. If the deadline is nearer than the
// store usually takes, begin waits for the deadline instead and returns an error.
func (p *pace) begin(ctx context.Context, store driver.Store, key string, policy *driver.Policy) (time.Time, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Time{}, nil
	}
	for {
		now := time.Now()
		had, usual := deadline.Sub(now), time.Duration(p.usual.Load())
		if had >= usual {
			return now, nil
		}
		if p.look(ctx, store, driver.Request{Key: key, Policy: policy}, now) && sleep(ctx, lookEvery) == nil {
			continue
		}
		<-ctx.Done()
		return now, storeError(ctx, fmt.Errorf("not sent, so nothing is charged: the store usually takes %v, "+
			"and the deadline left it %v", usual.Round(time.Microsecond), had.Round(time.Microsecond)))
	}
}

// look measures how long the store takes, unless another call measures now, and reports whether the store answered in time.
// It returns when the caller leaves; the store may take a second longer.
func (p *pace) look(ctx context.Context, store driver.Store, req driver.Request, now time.Time) bool {
	last := p.looked.Load()
	if now.UnixNano()-last < int64(lookEvery) || !p.looked.CompareAndSwap(last, looking) {
		return false
	}
	_, _ = apart.Outlive(ctx, nil, func(ctx context.Context) (struct{}, error) {
		defer func() { p.looked.Store(time.Now().UnixNano()) }()
		_, err := driver.Decide(ctx, store, req)
		p.end(ctx, now, err)
		return struct{}{}, err
	}, func(struct{}) {})
	return ctx.Err() == nil
}

// end measures a call that has ended with an answer or an error of the store. If the context ended first, the store takes longer.
func (p *pace) end(ctx context.Context, began time.Time, err error) {
	if began.IsZero() {
		return
	}
	took, usual := int64(time.Since(began)), p.usual.Load()
	switch step := usual/8 + 1; {
	case usual == 0:
		p.usual.Store(took)
	case took > usual:
		p.usual.Store(usual + step)
	case err == nil || ctx.Err() == nil:
		p.usual.Store(usual - step)
	}
}
