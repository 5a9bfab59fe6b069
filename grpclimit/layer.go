package grpclimit

import (
	"context"

	"example.com/sash"
	"example.com/sash/middleware"
)

// A Layer limits calls by one subject.
type Layer struct {
	// Name keeps the layer's keys apart from those of the others, and prefixes the names of its limits
	// ("customer:60/1m") in a refusal. It may be empty where there is one layer. Layers of one name in several
	// interceptors of a limiter count together, so give layers that count different things different names.
	Name string
	// Key returns the key of the subject in this layer that a call is charged to.
	Key KeyFunc
	// Limits are the limits of each subject. Empty means the limiter's own limits.
	Limits []sash.Limit
	// LimitsFor returns the limits for a call, such as those of its user's plan. When they change, charges of the
	// past stay. With ServerOptions.Messages it is called for each message too. An error with a gRPC status chooses
	// the status of the call, as that of a key function does. Nil or an empty result means Limits.
	LimitsFor func(ctx context.Context, call Call) ([]sash.Limit, error)
	// Charge says what the layer counts. Zero is Requests.
	Charge Charge
	// ResetOnSuccess is for a layer of Failures: it resets the subject when an attempt succeeds, which
	// forgets its failures and its running attempts. Do not set it on a key that attackers share with
	// accounts of their own, such as their address: they would log in to their account between guesses at
	// others. The store has to be a [driver.Resetter].
	ResetOnSuccess bool
	// Cost is the units that a call costs in this layer. Nil means ServerOptions.Cost in a layer of Requests,
	// and 1 in the others.
	Cost func(ctx context.Context, call Call) int64
	// Match reports whether the layer applies to a call. Nil is every call.
	Match func(ctx context.Context, call Call) bool
}

// A decision is the answer to one call.
type decision = middleware.Decision[request]

// generic returns layers for package middleware.
func generic(layers []Layer) []middleware.Layer[request] {
	out := make([]middleware.Layer[request], len(layers))
	for i, l := range layers {
		out[i] = middleware.Layer[request]{
			Name: l.Name, Key: theirs(l.Key)[0], Limits: l.Limits, Charge: l.Charge, ResetOnSuccess: l.ResetOnSuccess,
			Cost: onRequest(l.Cost), Match: onRequest(l.Match),
		}
		if limitsFor := l.LimitsFor; limitsFor != nil {
			out[i].LimitsFor = func(r request) ([]sash.Limit, error) { return limitsFor(r.ctx, r.call) }
		}
	}
	return out
}

// onRequest returns a function of a call as one of package middleware. Nil stays nil.
func onRequest[T any](f func(context.Context, Call) T) func(request) T {
	if f == nil {
		return nil
	}
	return func(r request) T { return f(r.ctx, r.call) }
}
