package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash"
)

// Defaults of ServerOptions and ClientOptions.
const (
	DefaultTimeout          = time.Second
	DefaultUnavailableRetry = 5 * time.Second
)

// Unavailable says what happens to calls while the store fails to answer.
type Unavailable uint8

// The policies for a store that fails.
const (
	// FailClosed ends the call with Unavailable and RetryInfo. It is the default because a limit is
	// there to protect something, and a failing store is often one that has too much to do already: who
	// wants the limits to vanish just then should say so.
	FailClosed Unavailable = iota
	// FailOpen lets the call pass. There is no limit at all while the store fails. It suits limits that
	// are a courtesy rather than a protection. Watch OnError.
	FailOpen
)

// A gate is what both sides do with a call before it goes on.
type gate struct {
	limiter       *sash.Limiter
	key           KeyFunc
	cost          func(context.Context, Call) int64
	exempt        func(context.Context, Call) bool
	onUnavailable Unavailable
	timeout       time.Duration
	retry         time.Duration
	onError       func(context.Context, Call, error)
}

// check fills in the defaults.
func (g *gate) check() error {
	if g.limiter == nil {
		return errors.New("grpclimit: an interceptor needs a limiter, from sash.New")
	}
	if g.key == nil {
		return errors.New("grpclimit: an interceptor needs a key function, such as PeerAddress on a server or Target on a client")
	}
	if g.onUnavailable > FailOpen {
		return fmt.Errorf("grpclimit: OnUnavailable is FailClosed or FailOpen, not %d", g.onUnavailable)
	}
	if g.timeout == 0 {
		g.timeout = DefaultTimeout
	}
	if g.retry <= 0 {
		g.retry = DefaultUnavailableRetry
	}
	if g.onError == nil {
		g.onError = func(context.Context, Call, error) {}
	}
	return nil
}

// subjectOf returns what the call is charged to, and how much. Without an error, an empty key means that
// the call is not limited.
func (g *gate) subjectOf(ctx context.Context, call Call) (key string, cost int64, err error) {
	if g.exempt != nil && g.exempt(ctx, call) {
		return "", 0, nil
	}
	key, err = g.key(ctx, call)
	if errors.Is(err, ErrExempt) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, &keyError{err}
	}
	if key == "" {
		return "", 0, fmt.Errorf("%w: the key function returned none; to exempt a call it returns ErrExempt", sash.ErrInvalidKey)
	}
	cost = 1
	if g.cost != nil {
		cost = g.cost(ctx, call)
	}
	return key, cost, nil
}

// ask runs one decision within the time that a decision may take.
func (g *gate) ask(ctx context.Context, key string, cost int64) (sash.Result, error) {
	within := ctx
	if g.timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, g.timeout)
		defer cancel()
	}
	res, err := g.limiter.AllowN(within, key, cost)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &sash.StoreError{Err: err} // the store took too long; the caller is still there
	}
	return res, err
}

// A keyError is an error of the key function: the only kind that may choose its own status.
type keyError struct{ err error }

func (e *keyError) Error() string { return e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// fail returns how a call ends for which there is no decision: nil when it goes on all the same. The
// status tells nothing that a caller could not do something about; err may name the store.
func (g *gate) fail(ctx context.Context, call Call, err error) *status.Status {
	if gone := ctx.Err(); gone != nil {
		return status.FromContextError(gone)
	}
	var fromKey *keyError
	isKey := errors.As(err, &fromKey)
	switch {
	case errors.Is(err, ErrNoKey):
		return status.New(codes.InvalidArgument, "the call does not tell whom it is from")
	case errors.Is(err, sash.ErrCostAboveLimit):
		return status.New(codes.InvalidArgument, "the call costs more than a limit allows at any time; make it smaller: waiting does not help")
	case isKey:
		if s, ok := status.FromError(fromKey.err); ok && s.Code() != codes.OK {
			return s
		}
	case errors.Is(err, sash.ErrUnavailable):
		g.onError(ctx, call, err)
		if g.onUnavailable == FailOpen {
			return nil
		}
		return withDetails(status.New(codes.Unavailable, "the call cannot be taken at the moment; retry after "+g.retry.String()), retryInfo(g.retry))
	}
	g.onError(ctx, call, err)
	return status.New(codes.Internal, "the call could not be checked against its limits")
}
