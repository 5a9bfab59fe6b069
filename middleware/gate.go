package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"example.com/sash"
)

// A Gate decides on requests before a handler, in all layers at once, and settles their charges after it. It is
// safe for concurrent use.
type Gate[R any] struct {
	limiter *sash.Limiter
	layers  []Layer[R]
	opts    GateOptions[R]
}

// GateOptions are the optional settings of a Gate. The zero value is the default. All functions may be called
// concurrently.
type GateOptions[R any] struct {
	// Cost returns the units of a request in layers of Requests, at least 1. Nil is 1 for every request. A
	// layer can have its own Cost.
	Cost func(R) int64
	// FailOpen says that the middleware admits requests while the store fails. It is an error together with a layer
	// of Failures. It is not the default, because limits protect something, and a store often fails under load.
	FailOpen bool
	// Timeout is the longest that a decision may take. A slower decision fails with a [*sash.StoreError]. It is also the
	// longest that [Decision.Settle] waits. Zero is a second. A negative Timeout sets no bound, except a second for Settle.
	Timeout time.Duration
	// OnError receives the errors of releases. Nil drops them.
	OnError func(R, error)
}

// NewGate returns a gate that decides all layers that apply to a request at once, all or nothing, whatever each charges: at most
// [sash.MaxSubjects]. Their keys have the limiter's prefix, and its algorithm counts them. The error names the invalid layer.
func NewGate[R any](limiter *sash.Limiter, layers []Layer[R], opts GateOptions[R]) (*Gate[R], error) {
	if limiter == nil {
		return nil, errors.New("a middleware needs a limiter, from sash.New")
	}
	if len(layers) == 0 {
		return nil, errors.New("a middleware needs at least one layer")
	}
	g := &Gate[R]{limiter: limiter, layers: slices.Clone(layers), opts: opts}
	always, names := 0, make(map[string]bool)
	for i, l := range layers {
		if l.Key == nil {
			return nil, fmt.Errorf("layer %d %q needs a key function, such as PeerAddress", i, l.Name)
		}
		if l.Name == "" && len(layers) > 1 {
			return nil, fmt.Errorf("layer %d needs a name: there are several", i)
		}
		if names[l.Name] {
			return nil, fmt.Errorf("two layers are called %q", l.Name)
		}
		names[l.Name] = true
		if l.Match == nil {
			always++
		}
		if err := g.check(&l); err != nil {
			return nil, fmt.Errorf("layer %d %q: %w", i, l.Name, err)
		}
	}
	if always > sash.MaxSubjects {
		return nil, fmt.Errorf("%d layers apply to every request; a decision has at most %d", always, sash.MaxSubjects)
	}
	return g, nil
}

// Decide makes one decision on all layers that apply to the request, all or nothing, whatever each charges, with the
// request's context. If no layer applies, the Decision is not Limited. [FailureOf] classifies the error.
func (g *Gate[R]) Decide(ctx context.Context, r R) (Decision[R], error) {
	d := Decision[R]{gate: g, request: r}
	if err := g.claim(&d); err != nil || len(d.claims) == 0 {
		return d, err
	}
	var room [4]sash.Subject // enough for most requests, without an allocation
	subjects := room[:0]
	for _, c := range d.claims {
		subjects = append(subjects, c.subject)
	}
	within, cancel := ctx, context.CancelFunc(func() {})
	if g.opts.Timeout >= 0 {
		within, cancel = context.WithTimeout(ctx, cmp.Or(g.opts.Timeout, defaultTimeout))
	}
	defer cancel()
	var err error
	if d.Charges(Failures) || d.Charges(InFlight) {
		var held *sash.Reservation
		first, others := subjects[0], slices.Clone(subjects[1:]) // a copy, so that room needs no allocation
		held, err = g.limiter.Reserve(within, first.Key, first.Cost, &sash.ReserveOptions{Limits: first.Limits, All: others})
		if err == nil {
			if d.Result = held.Result(); held.Allowed() {
				d.held = held.Parts
			}
		}
	} else {
		d.Result, err = g.limiter.AllowAll(within, subjects...)
	}
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &sash.StoreError{Err: err}
	}
	if err == nil && d.Result.Source == sash.FromPolicy && d.Charges(Failures) {
		// Do not admit password guesses that nothing counts, whatever the store's failure mode.
		d.held, err = nil, &sash.StoreError{Err: fmt.Errorf("failures are not counted: %w", d.Result.Cause)}
	}
	return d, err
}

// A claim is the charge of a request in one layer.
type claim[R any] struct {
	layer   *Layer[R]
	subject sash.Subject
}

func (g *Gate[R]) claim(d *Decision[R]) error {
	d.claims = make([]claim[R], 0, min(len(g.layers), sash.MaxSubjects))
	for i := range g.layers {
		l := &g.layers[i]
		if l.Match != nil && !l.Match(d.request) {
			continue
		}
		key, err := l.Key(d.request)
		if errors.Is(err, ErrExempt) {
			continue
		}
		if err == nil && key == "" {
			err = fmt.Errorf("%w: the key function returned an empty key; to exempt a request, return ErrExempt", sash.ErrInvalidKey)
		}
		if err != nil {
			return &FuncError{err}
		}
		if l.Name != "" { // before the unchanged key: a hash tag in it still holds keys together on a cluster
			key = sash.Key(l.Name) + ":" + key
		}
		s := sash.Subject{Key: key, Cost: 1, Limits: l.Limits}
		if cost := l.Cost; cost != nil {
			s.Cost = cost(d.request)
		} else if cost := g.opts.Cost; cost != nil && l.Charge == Requests {
			s.Cost = cost(d.request)
		}
		if l.LimitsFor != nil {
			limits, err := l.LimitsFor(d.request)
			if err == nil && len(limits) > 0 && l.Charge == InFlight {
				err = checkInFlight(limits)
			}
			if err != nil {
				return &FuncError{Err: err}
			}
			if len(limits) > 0 {
				s.Limits = limits
			}
		}
		d.claims = append(d.claims, claim[R]{l, s})
	}
	return nil
}

// A Layer limits requests by one subject.
type Layer[R any] struct {
	// Name separates the layer's keys from those of other layers. Clients see it in a refusal before the
	// limit's name ("customer:60/1m"). It may be empty if there is one layer. Layers with the same name in
	// several middlewares of a limiter count together.
	Name string
	// Key returns the key of the layer's subject that a request is charged to.
	Key KeyFunc[R]
	// Limits are the limits of each subject. Empty means the limiter's own limits.
	Limits []sash.Limit
	// LimitsFor returns the limits for a request, such as those of its user's plan. When the limits change,
	// past charges stay. Nil or an empty result means Limits.
	LimitsFor func(R) ([]sash.Limit, error)
	// Charge says what the layer counts. Zero is Requests.
	Charge Charge
	// ResetOnSuccess resets a subject in a layer of Failures when an attempt succeeds. The reset forgets its
	// failures and its running attempts. Do not set it for a key such as an address: attackers would log in to
	// their own account between guesses. The store needs [driver.CanForget].
	ResetOnSuccess bool
	// Cost returns the units of a request in this layer. Nil means the Cost of the middleware's options in a
	// layer of Requests, and 1 in the others.
	Cost func(R) int64
	// Match reports whether the layer applies to a request, such as one that writes. Nil matches every request.
	Match func(R) bool
}

// slotRetry is the retry time for a slot, which may become free at any moment.
const slotRetry = time.Second

// Describe returns the name of one of the layer's limits, without the layer's name, and the time until it has room
// for the request. The time is zero if it had room, and for a slot at most a second, unless the subject is blocked.
func (l *Layer[R]) Describe(limit *sash.LimitResult) (name string, retryAfter time.Duration) {
	name, retryAfter = limit.Limit.Name, limit.RetryAfter
	if l.Charge != InFlight {
		return name, retryAfter
	}
	if unnamed := sash.Every(limit.Limit.Units, limit.Limit.Window); name == unnamed.String() {
		name = strconv.FormatInt(limit.Limit.Units, 10) + " at once"
	}
	if !limit.Blocked {
		retryAfter = min(retryAfter, slotRetry)
	}
	return name, retryAfter
}

// check checks that the limiter can do what the layer needs. It makes invalid calls, which do no I/O: the
// limiter reports an unsupported operation of its store before an invalid call.
func (g *Gate[R]) check(l *Layer[R]) error {
	limits := l.Limits
	if len(limits) == 0 {
		limits = g.limiter.Limits()
	} else if _, err := g.limiter.With(limits...); err != nil {
		return err
	}
	if l.Charge > InFlight {
		return fmt.Errorf("unknown charge %d", l.Charge)
	}
	if l.ResetOnSuccess {
		if l.Charge != Failures {
			return errors.New("ResetOnSuccess is for a layer that charges Failures")
		}
		if err := g.limiter.Reset(context.Background(), ""); errors.Is(err, sash.ErrUnsupported) {
			return fmt.Errorf("ResetOnSuccess needs a store with driver.CanForget: %w", err)
		}
		if g.limiter.Policy().Algorithm == sash.SlidingBuckets {
			return fmt.Errorf("%w: ResetOnSuccess with sliding-buckets: a running attempt could release a failure that came after the reset in the same step; use sliding-log", sash.ErrInvalidLimit)
		}
	}
	if l.Charge == Requests {
		return nil
	}
	if _, err := g.limiter.Reserve(context.Background(), "", 0, nil); errors.Is(err, sash.ErrUnsupported) {
		return fmt.Errorf("a layer of Failures or InFlight releases its charges: %w", err)
	}
	if a := g.limiter.Policy().Algorithm; !a.Exact() {
		return fmt.Errorf("%w: algorithm %v admits more than the limit, and forgets when a request was charged; releasing a charge needs an exact one, such as sliding-log", sash.ErrInvalidLimit, a)
	}
	if l.Charge == Failures && g.opts.FailOpen {
		return errors.New("a layer of Failures, such as that of a login, cannot be configured open: leave FailOpen out, or give the layer a middleware of its own")
	}
	if l.Charge == InFlight {
		return checkInFlight(limits)
	}
	return nil
}

func checkInFlight(limits []sash.Limit) error {
	if len(limits) != 1 || limits[0].Period != 0 {
		return fmt.Errorf("%w: a layer of InFlight has one limit: the most requests, and the longest time that one may take, such as sash.Every(5, 10*time.Minute)", sash.ErrInvalidLimit)
	}
	return nil
}

// A Charge says what a layer counts.
type Charge uint8

// The charges. All except Requests are reservations: the middleware charges a request before the handler runs,
// in the same decision as the other layers, and releases the charge after it. So completed and running requests
// together never exceed a limit, over all processes that share the store. The limiter's algorithm has to be
// exact, and its store has to settle, as the stores of sash do.
//
// The middleware releases a charge even if the client has gone. It does so before the client has the whole
// response, unless the store takes longer than the timeout or the handler has already sent it. If the store
// fails, the charge expires with its window, and OnError receives the error. If the client has gone by the time
// of the decision, it is charged nothing and the handler does not run.
const (
	// Requests counts every request that is admitted.
	Requests Charge = iota
	// Failures counts the requests whose outcome is Failed, such as wrong passwords. Failures and running
	// attempts together never exceed the limit in a window. So running attempts that later succeed can cause a
	// refusal, and its retry time is then an upper bound. A response reports its own attempt as counted,
	// whatever the outcome. FailOpen is an error together with such a layer.
	Failures
	// InFlight counts the requests whose handler has not returned, such as streams. The layer has one limit:
	// its Units are the most requests in flight, and its Window is the longest time that a request may take. A
	// request counts no longer than that, even if it still runs or its process has died. A request in flight
	// may end at any moment, so the retry time is a second, or that of a [sash.Block].
	InFlight
)

// An Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	Neutral   Outcome = iota // layers of Failures release their charge
	Failed                   // layers of Failures keep their charge
	Succeeded                // layers of Failures release their charge; those with ResetOnSuccess reset the subject
)
