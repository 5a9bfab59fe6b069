package middleware

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/sash"
)

// A Layer limits requests by one subject.
type Layer[R any] struct {
	// Name keeps the layer's keys apart from those of the others, and prefixes the names of its limits
	// ("customer:60/1m") in what clients see of a refusal. It may be empty where there is one layer. Layers of
	// one name in several middlewares of a limiter count together, so give layers that count different
	// things different names.
	Name string
	// Key returns the key of the subject in this layer that a request is charged to.
	Key KeyFunc[R]
	// Limits are the limits of each subject. Empty means the limiter's own limits.
	Limits []sash.Limit
	// LimitsFor returns the limits for a request, such as those of its user's plan. When they change,
	// charges of the past stay. Nil or an empty result means Limits.
	LimitsFor func(R) ([]sash.Limit, error)
	// Charge says what the layer counts. Zero is Requests.
	Charge Charge
	// ResetOnSuccess is for a layer of Failures: it resets the subject when an attempt succeeds, which
	// forgets its failures and its running attempts. Do not set it on a key that attackers share with
	// accounts of their own, such as their address: they would log in to their account between guesses at
	// others. The store has to be a [driver.Resetter].
	ResetOnSuccess bool
	// Cost is the units that a request costs in this layer. Nil means the cost of the middleware's options in a
	// layer of Requests, and 1 in the others.
	Cost func(R) int64
	// Match reports whether the layer applies to a request, such as one that writes. Nil is every request.
	Match func(R) bool
}

// slotRetry is when to retry for a slot that may come free at any moment.
const slotRetry = time.Second

// Describe returns the name of one of the layer's limits, without that of the layer, and the time until it has room
// for the request: zero if it had room, and for a slot at most a second, unless the subject is blocked.
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

// check rejects layers that cannot work.
func (g *Gate[R]) check() error {
	if g.limiter == nil {
		return errors.New("a middleware needs a limiter, from sash.New")
	}
	if len(g.layers) == 0 {
		return errors.New("a middleware needs at least one layer")
	}
	always := 0
	names := make(map[string]bool)
	for i, l := range g.layers {
		if l.Key == nil {
			return fmt.Errorf("layer %d %q needs a key function, such as PeerAddress", i, l.Name)
		}
		if l.Name == "" && len(g.layers) > 1 {
			return fmt.Errorf("layer %d needs a name: there are several", i)
		}
		if names[l.Name] {
			return fmt.Errorf("two layers are called %q", l.Name)
		}
		names[l.Name] = true
		if l.Match == nil {
			always++
		}
		if len(l.Limits) > 0 {
			if _, err := g.limiter.With(l.Limits...); err != nil {
				return fmt.Errorf("layer %d %q: %w", i, l.Name, err)
			}
		}
		if err := g.checkCharge(&l); err != nil {
			return fmt.Errorf("layer %d %q: %w", i, l.Name, err)
		}
	}
	if always > sash.MaxSubjects {
		return fmt.Errorf("%d layers apply to every request; a decision has at most %d", always, sash.MaxSubjects)
	}
	return nil
}

// checkCharge checks that the limiter can do what the layer needs. It makes invalid calls, which do no I/O:
// the limiter reports what its store cannot do before it reports what is wrong with a call.
func (g *Gate[R]) checkCharge(l *Layer[R]) error {
	if l.Charge > InFlight {
		return fmt.Errorf("unknown charge %d", l.Charge)
	}
	if l.ResetOnSuccess {
		if l.Charge != Failures {
			return errors.New("ResetOnSuccess is for a layer that charges Failures")
		}
		if err := g.limiter.Reset(context.Background(), ""); errors.Is(err, sash.ErrUnsupported) {
			return fmt.Errorf("ResetOnSuccess needs a store that is a driver.Resetter: %w", err)
		}
		if g.limiter.Algorithm() == sash.SlidingBuckets {
			return fmt.Errorf("%w: ResetOnSuccess with sliding-buckets: a running attempt could release a failure that came after the reset in the same step; use sliding-log", sash.ErrInvalidLimit)
		}
	}
	if l.Charge == Requests {
		return nil
	}
	if _, _, err := g.limiter.ReserveAll(context.Background()); errors.Is(err, sash.ErrUnsupported) {
		return fmt.Errorf("a layer of %v releases its charges: %w", l.Charge, err)
	}
	if a := g.limiter.Algorithm(); !a.Exact() {
		return fmt.Errorf("%w: algorithm %v admits more than the limit, and forgets when a request was charged; releasing a charge needs an exact one, such as sliding-log", sash.ErrInvalidLimit, a)
	}
	if l.Charge == Failures && g.opts.FailOpen {
		return errors.New("a layer of Failures, such as that of a login, cannot be configured open: leave FailOpen out, or give the layer a middleware of its own")
	}
	if l.Charge == InFlight {
		limits := l.Limits
		if len(limits) == 0 {
			limits = g.limiter.Limits()
		}
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

// The charges. All but Requests are reservations: the middleware charges a request before the handler runs,
// in the same decision as the other layers, and releases the charge after it. So completed and running
// requests together never exceed a limit, over all processes that share the store. The limiter's algorithm
// has to be exact.
//
// Releasing needs a store that settles, as the stores of sash do. It happens also when the client has gone,
// and before the client has the whole response, unless the store takes longer than the timeout or the handler
// has sent the response already. A charge that cannot be released because the store fails expires with its window, and
// the middleware's OnError receives the error. A client that leaves while the store decides is charged nothing (see
// [sash.Limiter.Reserve]), and neither is one that has gone by the time the store has decided: the handler
// does not run.
const (
	// Requests counts every request that is admitted.
	Requests Charge = iota
	// Failures counts the requests whose outcome is Failed, such as wrong passwords. Failures and running
	// attempts together never exceed the limit in a window. So an attempt can be refused because of running
	// ones that later succeed, and the time to retry is then an upper bound. What a response reports counts
	// the attempt itself, whatever its outcome.
	//
	// A middleware that lets requests pass while the store fails (FailOpen) cannot have such a layer.
	Failures
	// InFlight counts the requests whose handler has not returned, such as streams. Its one limit has the
	// most requests in flight as Units and the longest time that a request may take as Window: a request of
	// a process that died counts until then, and one that takes longer no longer counts. A request in flight
	// may end at any moment, so the time to retry is a second, or that of a [sash.Block].
	InFlight
)

var chargeNames = [...]string{Requests: "requests", Failures: "failures", InFlight: "in-flight"}

// String returns "requests", "failures" or "in-flight".
func (c Charge) String() string {
	if int(c) < len(chargeNames) {
		return chargeNames[c]
	}
	return fmt.Sprintf("Charge(%d)", uint8(c))
}

// An Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	Neutral   Outcome = iota // layers of Failures release their charge
	Failed                   // layers of Failures keep their charge
	Succeeded                // layers of Failures release their charge; those with ResetOnSuccess reset the subject
)
