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

// An admission is a call that may be sent.
type admission struct {
	call    Call               // with its credential, if it has a pool
	counted []sash.LimitResult // of the call's limits; nil when the store has not counted it
	charged time.Time          // no later than the charge or the start of the booking; zero when the store has not counted it
	before  int64              // what this process had charged to its bucket before the decision
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
		admitted, refusal, err := t.decide(ctx, call, min(patience, max(within, 0)))
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

// tolerate returns nil in place of an error of the store with which Options.Unavailable sends a request all the same.
func (t *Transport) tolerate(req *http.Request, call Call, err error) error {
	if errors.Is(err, sash.ErrUnavailable) && t.opts.Unavailable != nil {
		return t.opts.Unavailable(req, call, err)
	}
	return err
}

// start sleeps until an admitted call starts, if it was booked for later. The call gives its place back when its context
// ends, and also when the API has refused others meanwhile or its limit has been lowered: then it asks again.
func (t *Transport) start(req *http.Request, admitted *admission) (again bool, err error) {
	ctx, subjects := req.Context(), admitted.call.subjects()
	if admitted.place == nil || admitted.place.Result().Delay == 0 {
		cools := func(key string) bool { return t.cool.here(key).left > 0 }
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
	admitted.before = t.learned.total(subjects[0])[0]
	t.learned.charged(subjects)
	return false, nil
}

// outdated reports whether a limit has been lowered while a call waited, so that it books anew. In a queue that is longer than a window
// nobody does: the API would be unused until those behind it come.
func (t *Transport) outdated(ctx context.Context, admitted *admission) bool {
	t.listen(ctx, admitted.call.subjects(), false)
	behind := admitted.place.Result().Delay
	within := func(l sash.Limit) bool { return behind <= span(l) }
	return slices.ContainsFunc(admitted.call.Limits, within) && t.learned.lowered(admitted)
}

// giveBack gives back what a call that is not sent was charged. It stays charged when the store fails.
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
		d, err := t.cool.remaining(ctx, key)
		if err != nil {
			return refusal{}, err
		}
		longest.longer(key, d)
	}
	return longest, nil
}

// decide charges the call if none of its buckets cools down, at the latest after a time ahead.
func (t *Transport) decide(ctx context.Context, call Call, within time.Duration) (admission, *refusal, error) {
	if call.Pool != nil {
		return t.decideAny(ctx, call, within)
	}
	cooling, err := t.cooling(ctx, &call)
	if err != nil {
		return admission{}, nil, err
	}
	wholes := call.subjects()
	if cooling.wait == 0 {
		t.listen(ctx, wholes, true)
	}
	now := time.Now()
	subjects := slices.Clone(wholes)
	for i, s := range wholes {
		limits, wait, rises := t.learned.apply(s, call.percent(i), now)
		subjects[i].Limits = limits
		cooling.longer(s.Key, wait)
		within = min(within, rises)
	}
	if cooling.wait > 0 {
		return admission{}, &cooling, nil
	}
	before := t.learned.total(wholes[0])[0]
	_, res, place, err := t.charge(ctx, within, false, call.Settle != nil, subjects)
	if err != nil {
		return admission{}, nil, err
	}
	if !res.Allowed {
		return admission{}, t.refusal(call, wholes, res), nil
	}
	return t.admitted(call, wholes, res, place, before, now), nil, nil
}

// admitted returns the admission of a call whose charge began at an instant. A call that was booked is charged, for what
// this process learns, when it starts.
func (t *Transport) admitted(
	call Call, wholes []sash.Subject, res sash.Result, place *sash.Reservation, before int64, began time.Time,
) admission {
	a := admission{call: call, before: before, place: place}
	if res.Delay == 0 {
		t.learned.charged(wholes)
	}
	counts := res.Source < sash.FromOwn // the usage of all processes, which a store that was unavailable does not have
	if counted := res.Limits(); counts && len(counted) >= len(call.Limits) {
		a.counted, a.charged = counted[:len(call.Limits)], began.Add(res.Delay)
	}
	return a
}

// charge charges the subjects, or any of them, and returns which one. It books a call that may wait. Where the store cannot book,
// or not all subjects together, a call waits by asking again. There is no place where nothing can be given back.
func (t *Transport) charge(
	ctx context.Context, within time.Duration, choice, settles bool, subjects []sash.Subject,
) (i int, res sash.Result, place *sash.Reservation, err error) {
	first, opts := subjects[0], sash.ReserveOptions{WaitUpTo: max(0, within), Limits: subjects[0].Limits, All: subjects[1:]}
	if choice {
		opts.All, opts.Any = nil, opts.All
	}
	if err = sash.ErrUnsupported; within > 0 {
		place, err = t.limiter.Reserve(ctx, first.Key, first.Cost, &opts)
	}
	if opts.WaitUpTo = 0; (choice || settles) && errors.Is(err, sash.ErrUnsupported) {
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
	if wait := t.learned.room(call, wholes, res, t.prefix); wait > 0 {
		res.RetryAfter = wait
	}
	res.RetryAfter = max(res.RetryAfter, time.Millisecond) // never a busy loop
	key := strings.TrimPrefix(by.Key, t.prefix)            // without the prefix, as the route returned it
	return &refusal{wait: res.RetryAfter, limited: &sash.LimitedError{Key: key, Limit: by.Limit, Result: res}}
}

// coolDown begins the cool-down that a response asks for, and returns its length. When the store fails, this process keeps to it all the
// same, so the error is ignored. The store gets a second, also when the caller is about to leave.
func (t *Transport) coolDown(req *http.Request, key string, wanted pause) time.Duration {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), time.Second)
	defer cancel()
	length, _ := t.cool.begin(ctx, key, wanted.length, wanted.guessed)
	return length
}

// sleep waits for a time. It returns the context's cause when the context ends first.
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
