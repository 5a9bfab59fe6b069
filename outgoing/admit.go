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

// An admission is a call that may go out. It is to be ended with landed.
type admission struct {
	counted []sash.LimitResult // for the call's limits; nil when the store has not counted it
	before  int64              // what leaving returned before the call was decided
}

// admit charges a call, after waiting for at most patience.
func (t *Transport) admit(req *http.Request, call Call, patience time.Duration) (admission, error) {
	ctx := req.Context()
	began := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return admission{}, context.Cause(ctx)
		}
		admitted, refusal, err := t.ask(ctx, call)
		if errors.Is(err, sash.ErrUnavailable) && t.opts.Unavailable != nil {
			if err := t.opts.Unavailable(req, call, err); err != nil {
				return admission{}, err
			}
			return admission{before: t.learned.leaving(call.subjects())}, nil
		}
		if err != nil || refusal == nil {
			return admitted, err
		}
		if patience == 0 {
			return admission{}, refusal.because(nil)
		}
		if refusal.wait > patience-time.Since(began) {
			return admission{}, refusal.because(ErrMaxWait)
		}
		wait := refusal.wait + refusal.jitter()
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			if left < refusal.wait {
				return admission{}, refusal.because(context.DeadlineExceeded)
			}
			wait = max(refusal.wait, min(wait, left-time.Millisecond))
		}
		if err := sleep(ctx, wait); err != nil {
			return admission{}, err
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
func (t *Transport) ask(ctx context.Context, call Call) (admission, *refusal, error) {
	var stays refusal
	for key := range call.cooling() {
		d, err := t.cool.remaining(ctx, key)
		if err != nil {
			return admission{}, nil, err
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
		return admission{}, &stays, nil
	}
	before := t.learned.leaving(wholes)
	res, err := t.limiter.AllowAll(ctx, subjects...)
	if err != nil || !res.Allowed {
		t.learned.landed(wholes, before)
		if err != nil {
			return admission{}, nil, err
		}
		return admission{}, t.refusal(call, wholes, res), nil
	}
	t.learned.charged(wholes)
	counted := res.Limits()
	if !counts(res) || len(counted) < len(call.Limits) {
		return admission{before: before}, nil, nil
	}
	return admission{counted[:len(call.Limits)], before}, nil, nil
}

// refusal is why a call was refused by its limits.
func (t *Transport) refusal(call Call, wholes []sash.Subject, res sash.Result) *refusal {
	by, _ := res.RefusedBy()
	if wait := t.learned.room(call, wholes, res, t.prefix); wait > 0 {
		res.RetryAfter = wait
	}
	res.RetryAfter = max(res.RetryAfter, time.Millisecond) // whatever a store says: not a loop
	key := strings.TrimPrefix(by.Key, t.prefix)            // as the route gave it
	return &refusal{wait: res.RetryAfter, limited: &sash.LimitedError{Key: key, Limit: by.Limit, Result: res}}
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
