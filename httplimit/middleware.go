package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/sash"
)

// A Middleware wraps a handler. It is an alias, so that routers take it as their own.
type Middleware = func(http.Handler) http.Handler

// Defaults of Options.
const (
	DefaultTimeout          = time.Second
	DefaultUnavailableRetry = 5 * time.Second
)

// Options are the rarer choices for a middleware. The zero value is the default. All functions may be
// called concurrently.
type Options struct {
	// Dialect is how answers tell what is left. Zero is Draft11.
	Dialect Dialect
	// PartitionKey is an HMAC key. With it, the fields of Draft11 have the parameter pk: a digest of
	// the subject's key, by which clients tell quotas apart that have the same name.
	PartitionKey []byte
	// Cost is the units that a request costs in the layers of Requests: at least 1. Nil is 1 for every
	// request. A layer can have its own. A cost above a limit's units is answered with 400: the request could never be admitted,
	// so it has to be made smaller, and waiting would not help.
	Cost func(r *http.Request) int64
	// Exempt requests go on to the handler without being counted. Nil is none.
	Exempt func(r *http.Request) bool
	// Block requests are answered with 403 and not counted. It comes before Exempt. Nil is none.
	Block func(r *http.Request) bool
	// Outcome tells failures from successes, where a layer charges Failures. Nil is ByStatus.
	Outcome OutcomeFunc
	// OnUnavailable says what happens while the store fails. Zero is FailClosed.
	OnUnavailable Unavailable
	// Timeout is the longest that a decision may take; after it the store has failed. It is also the longest
	// that an answer waits for what is given back. Zero is DefaultTimeout, negative is as long as the
	// request's context allows, and DefaultTimeout for what is given back.
	Timeout time.Duration
	// UnavailableRetry is the Retry-After of a 503. Zero is DefaultUnavailableRetry.
	UnavailableRetry time.Duration
	// Denied answers the requests that do not go on. Retry-After and the fields of the dialect are set
	// already. Nil is Denial.Write.
	Denied func(w http.ResponseWriter, r *http.Request, d Denial)
	// OnError is told of every error: the store's, also when FailOpen hides it from the client or the
	// request has been answered already, and wrong keys, costs and limits. It is not told of refusals, of
	// ErrNoKey and of clients that left. Nil tells nobody, and a library does not log by itself: set it,
	// or a mistake in a key function shows only as answers of 500.
	OnError func(r *http.Request, err error)
}

// New returns a middleware that holds every key to the limiter's limits.
//
// What counts together is decided by store, [sash.Options].Prefix and key, and not by the middleware: two
// limiters on one store without a Prefix count the same requests, so that a login with 5 a minute is refused
// after 5 requests to the API. Give each limiter a Prefix of its own, such as "api" and "login", or each
// [Layer] a Name.
func New(limiter *sash.Limiter, key KeyFunc, opts *Options) (Middleware, error) {
	return NewLayers(limiter, []Layer{{Key: key}}, opts)
}

// NewLayers returns a middleware that holds a request to the limits of every layer that matches it: in
// one decision, all or nothing, whatever each of them charges. At most [sash.MaxSubjects] layers can apply to one request. Their keys
// live under the limiter's prefix and are counted with its algorithm. On a Redis Cluster see
// [sash.KeyTogether] and [sash.Limiter.AllowAll].
func NewLayers(limiter *sash.Limiter, layers []Layer, opts *Options) (Middleware, error) {
	if limiter == nil {
		return nil, errors.New("httplimit: a middleware needs a limiter, from sash.New")
	}
	g := &gate{limiter: limiter, layers: append([]Layer(nil), layers...)}
	if opts != nil {
		g.opts = *opts
	}
	if err := g.opts.check(); err != nil {
		return nil, err
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

func (o *Options) check() error {
	if o.Dialect > NoFields {
		return fmt.Errorf("httplimit: unknown dialect %v", o.Dialect)
	}
	if o.OnUnavailable > FailOpen {
		return fmt.Errorf("httplimit: OnUnavailable is FailClosed or FailOpen, not %d", o.OnUnavailable)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.UnavailableRetry <= 0 {
		o.UnavailableRetry = DefaultUnavailableRetry
	}
	if o.Denied == nil {
		o.Denied = func(w http.ResponseWriter, _ *http.Request, d Denial) { d.Write(w) }
	}
	if o.Outcome == nil {
		o.Outcome = ByStatus
	}
	if o.OnError == nil {
		o.OnError = func(*http.Request, error) {}
	}
	return nil
}

// A gate is the middleware around any handler.
type gate struct {
	limiter *sash.Limiter
	layers  []Layer
	opts    Options
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if g.opts.early(w, r, next) {
		return
	}
	claims, err := g.claims(r)
	if err == nil && len(claims) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	var res sash.Result
	var held []*sash.Reservation
	if err == nil {
		res, held, err = g.decide(r, claims)
	}
	if err != nil {
		g.opts.fail(w, r, err, next)
		return
	}
	quotas := quotasOf(res, claims)
	if !res.Allowed {
		g.opts.refuse(w, r, res, quotas)
		return
	}
	if held != nil && errors.Is(r.Context().Err(), context.Canceled) {
		g.settle(r, claims, held, Neutral) // nobody is there to do anything for
		w.WriteHeader(statusClientClosed)
		return
	}
	if res.Source != sash.FromPolicy { // which counted nothing: there is nothing to tell
		g.opts.Dialect.write(w.Header(), quotas, g.opts.PartitionKey, verdict{allowed: true, at: res.At})
	}
	if held == nil {
		next.ServeHTTP(w, r)
		return
	}
	g.hold(w, r, claims, held, next)
}

// decide runs one decision within the time that it may take. It returns a reservation for each claim if
// there is anything to settle afterwards.
func (g *gate) decide(r *http.Request, claims []claim) (res sash.Result, held []*sash.Reservation, err error) {
	ctx := r.Context()
	if g.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.opts.Timeout)
		defer cancel()
	}
	subjects := make([]sash.Subject, len(claims))
	settles := false
	for i, c := range claims {
		subjects[i] = c.subject
		settles = settles || c.layer.Charge != Requests
	}
	if settles {
		res, held, err = g.limiter.ReserveAll(ctx, subjects...)
	} else {
		res, err = g.limiter.AllowAll(ctx, subjects...)
	}
	if err == nil && res.Source == sash.FromPolicy && slices.ContainsFunc(claims, func(c claim) bool { return c.layer.Charge == Failures }) {
		// Whatever the store was told to do when it fails: guesses that nobody counts are not let in.
		return res, held, &sash.StoreError{Err: fmt.Errorf("failures are not counted: %w", res.Cause)}
	}
	if err != nil && ctx.Err() != nil {
		err = &sash.StoreError{Err: err} // or of the server's deadline; fail looks first whether the client has gone
	}
	return res, held, err
}
