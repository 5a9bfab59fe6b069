package outgoing

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
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

// ask asks once: is a bucket of the call cooling down, and if not, does the call fit?
func (t *Transport) ask(ctx context.Context, call Call) ([]sash.LimitResult, *refusal, error) {
	var stays refusal
	for key := range call.cooling() {
		d, err := t.cool.remaining(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		stays.longer(key, d)
	}
	wholes, now := call.subjects(), time.Now()
	subjects := slices.Clone(wholes)
	for i, s := range wholes {
		limits, wait := t.learned.apply(s, call.percent(i), now)
		subjects[i].Limits = limits
		stays.longer(s.Key, wait)
	}
	if stays.wait > 0 {
		return nil, &stays, nil
	}
	res, err := t.limiter.AllowAll(ctx, subjects...)
	if err != nil {
		return nil, nil, err
	}
	if !res.Allowed {
		by, _ := res.RefusedBy()
		if wait := t.learned.room(call, wholes, res, t.prefix); wait > 0 {
			res.RetryAfter = wait
		}
		res.RetryAfter = max(res.RetryAfter, time.Millisecond) // whatever a store says: not a loop
		key := strings.TrimPrefix(by.Key, t.prefix)            // as the route gave it
		return nil, &refusal{wait: res.RetryAfter, limited: &sash.LimitedError{Key: key, Limit: by.Limit, Result: res}}, nil
	}
	counted := res.Limits()
	if !counts(res) || len(counted) < len(call.Limits) {
		return nil, nil, nil
	}
	return counted[:len(call.Limits)], nil, nil
}

// counts tells whether a result shows what the whole fleet has used, and not what one process has decided while
// the store was unavailable.
func counts(res sash.Result) bool { return res.Source < sash.FromLocal }

// longer makes a refusal the one of a bucket that has to be waited for longer.
func (r *refusal) longer(key string, wait time.Duration) {
	if wait > r.wait {
		r.key, r.wait = key, wait
	}
}

// tell puts a cool-down where other processes see it, and returns how long it lasts. The answer that asked for
// it is right even when the store cannot be told; this process keeps to it all the same. The store is told even
// when the caller is about to leave, and that does not take longer than a second.
func (t *Transport) tell(req *http.Request, key string, away stay) time.Duration {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), time.Second)
	defer cancel()
	lasts, _ := t.cool.begin(ctx, key, away.lasts, away.guessed)
	return lasts
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
