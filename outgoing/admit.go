package outgoing

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"example.com/sash"
)

// admit charges a call, after waiting for at most patience. It returns what the store has counted for the
// call's limits, or nil when the request goes out without a charge.
func (t *Transport) admit(req *http.Request, call Call, patience time.Duration) ([]sash.LimitResult, error) {
	ctx := req.Context()
	began := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		counted, refusal, err := t.ask(ctx, call)
		if errors.Is(err, sash.ErrUnavailable) && t.opts.Unavailable != nil {
			return nil, t.opts.Unavailable(req, call, err)
		}
		if err != nil || refusal == nil {
			return counted, err
		}
		if patience == 0 {
			return nil, refusal.because(nil)
		}
		if refusal.wait > patience-time.Since(began) {
			return nil, refusal.because(ErrMaxWait)
		}
		wait := refusal.wait + refusal.jitter()
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			if left < refusal.wait {
				return nil, refusal.because(context.DeadlineExceeded)
			}
			wait = max(refusal.wait, min(wait, left-time.Millisecond))
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// A refusal is why a call has no room, and for how long.
type refusal struct {
	key     string
	wait    time.Duration
	limited *sash.LimitedError // nil when the bucket is cooling down
}

func (r *refusal) because(cause error) error {
	if r.limited != nil {
		r.limited.Cause = cause
		return r.limited
	}
	return &CoolDownError{Key: r.key, RetryAfter: r.wait, Cause: cause}
}

// jitter spreads those who wait for the same cool-down over a tenth of it. Those who wait for a limit are
// spread by the limit.
func (r *refusal) jitter() time.Duration {
	if r.limited != nil {
		return 0
	}
	return time.Duration(rand.Int64N(int64(r.wait/10) + 1))
}

// ask asks once: is the bucket cooling down, and if not, does the call fit?
func (t *Transport) ask(ctx context.Context, call Call) ([]sash.LimitResult, *refusal, error) {
	d, err := t.cool.remaining(ctx, call.Key)
	if err != nil {
		return nil, nil, err
	}
	limits, wait := t.learned.apply(call, time.Now())
	if d = max(d, wait); d > 0 {
		return nil, &refusal{key: call.Key, wait: d}, nil
	}
	own := sash.Subject{Key: call.Key, Cost: call.Cost, Limits: limits}
	res, err := t.limiter.AllowAll(ctx, append([]sash.Subject{own}, call.Also...)...)
	if err != nil {
		return nil, nil, err
	}
	if !res.Allowed {
		by, _ := res.RefusedBy()
		return nil, &refusal{wait: res.RetryAfter, limited: &sash.LimitedError{Key: by.Key, Limit: by.Limit, Result: res}}, nil
	}
	return res.Limits()[:len(limits)], nil, nil
}

// A stay is what an answer asks of those who send to the bucket: to stay away for a while, because a
// request was refused or because nothing is left.
type stay struct {
	refused bool
	lasts   time.Duration // zero when it asks for nothing
}

func stayAway(call Call, res *http.Response, quotas []Quota, now time.Time) stay {
	exhausted, reset := false, time.Duration(0)
	for _, q := range quotas {
		if q.HasRemaining && q.Remaining == 0 && q.Unit != unitConcurrent {
			exhausted, reset = true, max(reset, q.Reset)
		}
	}
	after, said := retryAfter(res.Header, now)
	refused := res.StatusCode == http.StatusTooManyRequests ||
		res.StatusCode == http.StatusServiceUnavailable && said ||
		slices.Contains(call.Profile.AlsoRefused, res.StatusCode) && (said || exhausted)
	switch {
	case !refused:
		return stay{lasts: reset}
	case said:
		reset = after
	case reset == 0:
		reset = call.Profile.coolDown()
	}
	return stay{refused: true, lasts: max(reset, shortestCoolDown)}
}

// shortestCoolDown keeps a Retry-After of zero from turning refusals into a tight loop.
const shortestCoolDown = 100 * time.Millisecond

// tell puts a cool-down where other processes see it. It does not take longer than a second.
func (t *Transport) tell(req *http.Request, key string, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), time.Second)
	defer cancel()
	_ = t.cool.begin(ctx, key, d)
}

// sleep returns early, with the context's cause, when the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
