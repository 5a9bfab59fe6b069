package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	// Cost is the units that a request costs: at least 1. Nil is 1 for every request. A layer can have
	// its own. A cost above a limit's units is answered with 400: the request could never be admitted,
	// so it has to be made smaller, and waiting would not help.
	Cost func(r *http.Request) int64
	// Exempt requests go on to the handler without being counted. Nil is none.
	Exempt func(r *http.Request) bool
	// Block requests are answered with 403 and not counted. It comes before Exempt. Nil is none.
	Block func(r *http.Request) bool
	// OnUnavailable says what happens while the store fails. Zero is FailClosed.
	OnUnavailable Unavailable
	// Timeout is the longest that a decision may take; after it the store has failed. Zero is
	// DefaultTimeout, negative is as long as the request's context allows.
	Timeout time.Duration
	// UnavailableRetry is the Retry-After of a 503. Zero is DefaultUnavailableRetry.
	UnavailableRetry time.Duration
	// Denied answers the requests that do not go on. Retry-After and the fields of the dialect are set
	// already. Nil is Denial.Write.
	Denied func(w http.ResponseWriter, r *http.Request, d Denial)
	// OnError is told of every error: the store's, also when FailOpen hides it from the client, and
	// wrong keys, costs and limits. It is not told of refusals, of ErrNoKey and of clients that left.
	OnError func(r *http.Request, err error)
}

// A Layer limits requests by one subject.
type Layer struct {
	// Name keeps the layer's keys apart from those of the others, and stands before the names of its
	// limits ("customer:60/1m") in fields and answers. It may be empty where there is one layer.
	Name string
	// Key says which subject of this layer a request is charged to.
	Key KeyFunc
	// Limits are what each subject is held to. Empty means the limiter's own limits.
	Limits []sash.Limit
	// LimitsFor returns the limits for a request, such as those of its user's plan. When they change,
	// what was charged stays charged. Nil or an empty result means Limits.
	LimitsFor func(r *http.Request) ([]sash.Limit, error)
	// Cost is the units that a request costs in this layer. Nil means Options.Cost.
	Cost func(r *http.Request) int64
	// Match says which requests the layer is for, such as Reads or Writes. Nil is every request.
	Match func(r *http.Request) bool
}

// New returns a middleware that holds every key to the limiter's limits.
func New(limiter *sash.Limiter, key KeyFunc, opts *Options) (Middleware, error) {
	return NewLayers(limiter, []Layer{{Key: key}}, opts)
}

// NewLayers returns a middleware that holds a request to the limits of every layer that matches it: in
// one decision, all or nothing. At most [sash.MaxSubjects] layers can apply to one request. Their keys
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
	if err := checkLayers(layers); err != nil {
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
	if o.OnError == nil {
		o.OnError = func(*http.Request, error) {}
	}
	return nil
}

func checkLayers(layers []Layer) error {
	if len(layers) == 0 {
		return errors.New("httplimit: a middleware needs at least one layer")
	}
	always := 0
	names := make(map[string]bool)
	for i, l := range layers {
		if l.Key == nil {
			return fmt.Errorf("httplimit: layer %d %q needs a key function, such as PeerAddress", i, l.Name)
		}
		if l.Name == "" && len(layers) > 1 {
			return fmt.Errorf("httplimit: layer %d needs a name: there are several", i)
		}
		if names[l.Name] {
			return fmt.Errorf("httplimit: two layers are called %q", l.Name)
		}
		names[l.Name] = true
		if l.Match == nil {
			always++
		}
		for _, limit := range l.Limits {
			if err := limit.Validate(); err != nil {
				return fmt.Errorf("httplimit: layer %d %q: %w", i, l.Name, err)
			}
		}
	}
	if always > sash.MaxSubjects {
		return fmt.Errorf("httplimit: %d layers apply to every request; a decision has at most %d", always, sash.MaxSubjects)
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
	subjects, names, err := g.subjects(r)
	if err == nil && len(subjects) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	var res sash.Result
	if err == nil {
		res, err = g.opts.ask(r, func(ctx context.Context) (sash.Result, error) {
			return g.limiter.AllowAll(ctx, subjects...)
		})
	}
	if err != nil {
		g.opts.fail(w, r, err, next)
		return
	}
	quotas := quotasOf(res, subjects, names)
	if res.Allowed {
		g.opts.admit(w, r, res, quotas, next)
		return
	}
	g.opts.refuse(w, r, res, res.RetryAfter, quotas)
}

// subjects returns what the request is to be charged to, and the name of each subject's layer.
func (g *gate) subjects(r *http.Request) (subjects []sash.Subject, names []string, err error) {
	for i := range g.layers {
		l := &g.layers[i]
		if l.Match != nil && !l.Match(r) {
			continue
		}
		key, err := layerKey(l.Name, l.Key, r)
		if errors.Is(err, ErrExempt) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		s := sash.Subject{Key: key, Cost: 1, Limits: l.Limits}
		if cost := l.Cost; cost != nil {
			s.Cost = cost(r)
		} else if cost := g.opts.Cost; cost != nil {
			s.Cost = cost(r)
		}
		if l.LimitsFor != nil {
			limits, err := l.LimitsFor(r)
			if err != nil {
				return nil, nil, err
			}
			if len(limits) > 0 {
				s.Limits = limits
			}
		}
		subjects, names = append(subjects, s), append(names, l.Name)
	}
	return subjects, names, nil
}

// layerKey puts the layer's name before the key. The key keeps the form that it has: a hash tag in it
// still holds keys together on a cluster.
func layerKey(name string, f KeyFunc, r *http.Request) (string, error) {
	key, err := f(r)
	if err != nil || name == "" || key == "" {
		return key, err
	}
	return sash.Key(name) + ":" + key, nil
}
