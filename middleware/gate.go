package middleware

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
)

// A Gate decides on requests before a handler, in all layers at once, and settles them after it. It is safe for
// concurrent use.
type Gate[R any] struct {
	limiter *sash.Limiter
	layers  []Layer[R]
	opts    GateOptions[R]
}

// GateOptions are the optional settings of a Gate. The zero value is the default. All functions may be called
// concurrently.
type GateOptions[R any] struct {
	// Cost is the units that a request costs in the layers of Requests: at least 1. Nil is 1 for every
	// request. A layer can have its own.
	Cost func(R) int64
	// FailOpen says that the middleware admits requests while the store fails, which is an error beside a layer of
	// Failures. It is not the default, because a limit protects something, and a store often fails under load: to lift the
	// limits just then should be a choice.
	FailOpen bool
	// Timeout is the longest that a decision may take, as that of [Within]. It is also the longest that
	// [Decision.Settle] waits; a negative one is DefaultTimeout there.
	Timeout time.Duration
	// OnError receives the errors of releases. Nil drops them.
	OnError func(R, error)
}

// NewGate returns a gate with at most [sash.MaxSubjects] layers for each request. The keys of the layers live under the
// limiter's prefix and are counted with its algorithm. The error says which layer is wrong.
func NewGate[R any](limiter *sash.Limiter, layers []Layer[R], opts GateOptions[R]) (*Gate[R], error) {
	g := &Gate[R]{limiter: limiter, layers: append([]Layer[R](nil), layers...), opts: opts}
	if err := g.check(); err != nil {
		return nil, err
	}
	return g, nil
}

// Decide runs one decision on all layers that apply to the request, all or nothing, whatever each of them charges, with
// the request's context. Without such a layer the Decision is not Limited. [FailureOf] classifies the error.
func (g *Gate[R]) Decide(ctx context.Context, r R) (Decision[R], error) {
	d := Decision[R]{gate: g, request: r}
	if err := g.claim(&d); err != nil || len(d.claims) == 0 {
		return d, err
	}
	var room [4]sash.Subject // enough for most, without an allocation
	subjects := room[:0]
	for _, c := range d.claims {
		subjects = append(subjects, c.subject)
	}
	settles := d.Charges(Failures) || d.Charges(InFlight)
	err := Within(ctx, g.opts.Timeout, func(ctx context.Context) (err error) {
		if settles {
			d.Result, d.held, err = g.limiter.ReserveAll(ctx, subjects...)
		} else {
			d.Result, err = g.limiter.AllowAll(ctx, subjects...)
		}
		return err
	})
	if err == nil && d.Result.Source == sash.FromPolicy && d.Charges(Failures) {
		// Whatever the failure mode of the store is, guesses that nothing counts are not admitted.
		d.held, err = nil, &sash.StoreError{Err: fmt.Errorf("failures are not counted: %w", d.Result.Cause)}
	}
	return d, err
}

// A claim is the charge of a request in one layer.
type claim[R any] struct {
	layer   *Layer[R]
	subject sash.Subject
}

// claim adds the charges of a request in the layers that apply to it.
func (g *Gate[R]) claim(d *Decision[R]) error {
	d.claims = make([]claim[R], 0, min(len(g.layers), sash.MaxSubjects))
	for i := range g.layers {
		l := &g.layers[i]
		if l.Match != nil && !l.Match(d.request) {
			continue
		}
		key, limited, err := l.Key.Resolve(d.request)
		if err != nil {
			return err
		}
		if !limited {
			continue
		}
		if l.Name != "" { // before the key as it is: a hash tag in it still holds keys together on a cluster
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
