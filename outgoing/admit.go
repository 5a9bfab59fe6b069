package outgoing

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/sash"
)

// An admission is a call that may be sent.
type admission struct {
	call    Call               // with its credential, if it has a pool
	counted []sash.LimitResult // the call's limits as counted; nil if the store did not count the call
	charged time.Time          // no later than the charge or the booking's start; zero if the store did not count the call
	place   *sash.Reservation  // nil when there is nothing to give back
}

func (t *Transport) admit(req *http.Request, call Call, patience time.Duration) (admission, error) {
	ctx := req.Context()
	began := time.Now()
	if call.Settle != nil {
		t.at.settles.Store(true)
	}
	for {
		if err := ctx.Err(); err != nil {
			return admission{}, context.Cause(ctx)
		}
		within := patience - time.Since(began)
		if deadline, ok := ctx.Deadline(); ok {
			within = min(within, time.Until(deadline))
		}
		admitted, refusal, err := t.decide(ctx, call, max(within, 0))
		if err != nil {
			if err = t.tolerate(req, call, err); err == nil {
				call, err = t.uncounted(call)
			}
			return admission{call: call}, err
		}
		if refusal == nil {
			again, err := t.start(req, &admitted)
			if again {
				continue
			}
			return admitted, err
		}
		if patience == 0 {
			return admission{}, refusal.because(nil)
		}
		if refusal.wait > patience-time.Since(began) {
			return admission{}, refusal.because(ErrMaxWait)
		}
		wait := refusal.wait
		if refusal.limited == nil { // calls that wait for a limit are spread by the limit, those for a cool-down over a tenth of it
			wait += time.Duration(rand.Int64N(int64(wait/10) + 1))
		}
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

// tolerate returns nil if Options.Unavailable sends the request despite an error of the store.
func (t *Transport) tolerate(req *http.Request, call Call, err error) error {
	if errors.Is(err, sash.ErrUnavailable) && t.opts.Unavailable != nil {
		return t.opts.Unavailable(req, call, err)
	}
	return err
}

// start sleeps until a booked call starts. If the context ends, the call gives its booking back. If a cool-down has
// begun or its limit has been lowered meanwhile, it gives its charge back, and start reports that it must ask again.
func (t *Transport) start(req *http.Request, admitted *admission) (again bool, err error) {
	ctx := req.Context()
	if admitted.place == nil || admitted.place.Result().Delay == 0 {
		cools := func(key string) bool { return t.known.coolDown(key).left > 0 }
		if !slices.ContainsFunc(admitted.call.cooling(), cools) {
			return false, nil
		}
		giveBack(ctx, admitted.place)
		return true, nil
	}
	booked := admitted.place.Result().At
	if err := admitted.place.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return false, err
	}
	cooling, err := t.cooling(ctx, &admitted.call)
	err = t.tolerate(req, admitted.call, err) // its charge stands
	again = err == nil && (cooling.wait > 0 || t.outdated(ctx, admitted))
	if err != nil || again {
		giveBack(ctx, admitted.place)
		return again, err
	}
	if !admitted.charged.IsZero() { // the booking may have moved up
		admitted.charged = admitted.charged.Add(admitted.place.Result().At.Sub(booked))
	}
	admitted.call.before = t.known.sent(admitted.call.Key)
	t.known.charged(admitted.call.subjects())
	return false, nil
}

// outdated reports whether a limit was lowered while a call waited, so that the call has to book again. In a
// queue longer than a window it reports false: otherwise the API would be idle until the calls behind it start.
func (t *Transport) outdated(ctx context.Context, admitted *admission) bool {
	t.listen(ctx, admitted.call.subjects(), false)
	behind := admitted.place.Result().Delay
	within := func(l sash.Limit) bool { return behind <= span(l) }
	return slices.ContainsFunc(admitted.call.Limits, within) && t.known.lowered(admitted)
}

// giveBack gives back the charge of a call that is not sent. If the store fails, the charge remains.
func giveBack(ctx context.Context, place *sash.Reservation) {
	if place != nil {
		_ = place.Release(ctx)
	}
}

// A refusal says why a call has no room, and for how long.
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

func (r *refusal) longer(key string, wait time.Duration) {
	if wait > r.wait {
		r.key, r.wait = key, wait
	}
}

func (t *Transport) cooling(ctx context.Context, call *Call) (longest refusal, err error) {
	for _, key := range call.cooling() {
		d, err := t.remaining(ctx, key)
		if err != nil {
			return refusal{}, err
		}
		longest.longer(key, d)
	}
	return longest, nil
}

// A choice lists the calls that a request can be charged as: its own call, or one for each credential of its pool.
type choice struct {
	calls    []Call         // none if all have to wait
	subjects []sash.Subject // of the own call, or one for each credential, with the limits that apply now
	rises    time.Duration  // the time until a level has risen: no call is booked later than that
}

// usable returns the choice that a call has now. If it has none, the refusal says for how long.
func (t *Transport) usable(ctx context.Context, call *Call) (choice, *refusal, error) {
	if call.Pool != nil {
		return t.usableOf(call)
	}
	cooling, err := t.cooling(ctx, call)
	if err != nil {
		return choice{}, nil, err
	}
	out := choice{calls: []Call{*call}, subjects: call.subjects(), rises: math.MaxInt64}
	if cooling.wait == 0 {
		t.listen(ctx, out.subjects, true)
	}
	now := time.Now()
	for i, s := range out.subjects {
		limits, wait, rises := t.known.apply(s, call.percent(i), now)
		out.subjects[i].Limits, out.rises = limits, min(out.rises, rises)
		cooling.longer(s.Key, wait)
	}
	if cooling.wait > 0 {
		out.calls = nil
	}
	return out, &cooling, nil
}

// decide charges the call for a start within the given time, unless one of its buckets cools down.
func (t *Transport) decide(ctx context.Context, call Call, within time.Duration) (admission, *refusal, error) {
	for {
		choice, cooling, err := t.usable(ctx, &call)
		if err != nil || len(choice.calls) == 0 {
			return admission{}, cooling, err
		}
		for i := range choice.calls {
			choice.calls[i].before = t.known.sent(choice.calls[i].Key)
		}
		began := time.Now()
		i, res, place, err := t.charge(ctx, min(within, choice.rises), &call, choice.subjects)
		if err != nil {
			return admission{}, nil, err
		}
		one := choice.calls[i]
		wholes := one.subjects()
		if !res.Allowed {
			refused := t.refusal(one, wholes, res)
			if cooling.wait > 0 {
				refused.wait = min(refused.wait, cooling.wait)
			}
			return admission{}, refused, nil
		}
		if one.credential != nil {
			// Another process may have recorded a cool-down or a level in the store. This process remembers it,
			// so that it does not choose the same credential again.
			there, err := t.cooling(ctx, &one)
			if err != nil || there.wait > 0 || t.listen(ctx, wholes, true) {
				giveBack(ctx, place)
				if err != nil {
					return admission{}, nil, err
				}
				continue
			}
		}
		a := admission{call: one, place: place}
		if res.Delay == 0 { // a booked call is counted when it starts
			t.known.charged(wholes)
		}
		counts := res.Source < sash.FromOwn // an answer without the store does not know the usage of all processes
		if counted := res.Limits(); counts && len(counted) >= len(one.Limits) {
			a.counted, a.charged = counted[:len(one.Limits)], began.Add(res.Delay)
		}
		return a, nil, nil
	}
}

// charge charges all subjects, or any one of a pool, and returns which. It books a call that may wait. If the store cannot
// book all subjects together, the call asks again until there is room. The place is nil if nothing can be given back.
func (t *Transport) charge(
	ctx context.Context, within time.Duration, call *Call, subjects []sash.Subject,
) (i int, res sash.Result, place *sash.Reservation, err error) {
	choice := call.Pool != nil
	first, opts := subjects[0], sash.ReserveOptions{WaitUpTo: max(0, within), Limits: subjects[0].Limits, All: subjects[1:]}
	if choice {
		opts.All, opts.Any = nil, opts.All
	}
	if err = sash.ErrUnsupported; within > 0 {
		place, err = t.limiter.Reserve(ctx, first.Key, first.Cost, &opts)
	}
	if opts.WaitUpTo = 0; (choice || call.Settle != nil) && errors.Is(err, sash.ErrUnsupported) {
		place, err = t.limiter.Reserve(ctx, first.Key, first.Cost, &opts)
	}
	switch {
	case err == nil:
		return place.Chosen, place.Result(), place, nil
	case errors.Is(err, sash.ErrUnsupported) && choice:
		i, res, err = t.limiter.AllowAny(ctx, subjects...)
	case errors.Is(err, sash.ErrUnsupported):
		res, err = t.limiter.AllowAll(ctx, subjects...)
	}
	return i, res, nil, err
}

func (t *Transport) refusal(call Call, wholes []sash.Subject, res sash.Result) *refusal {
	by, _ := res.RefusedBy()
	if wait := t.known.room(call, wholes, res, t.prefix); wait > 0 {
		res.RetryAfter = wait
	}
	res.RetryAfter = max(res.RetryAfter, time.Millisecond) // never a busy loop
	key := strings.TrimPrefix(by.Key, t.prefix)            // without the prefix, as the route returned it
	return &refusal{wait: res.RetryAfter, limited: &sash.LimitedError{Key: key, Limit: by.Limit, Result: res}}
}

// sleep waits for a duration. If the context ends first, it returns the context's cause.
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
