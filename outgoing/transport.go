package outgoing

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// longestDay is a day on which clocks go back.
const longestDay = 25 * time.Hour

// Options are the optional settings of a Transport. The zero value is the default.
type Options struct {
	// Base sends the requests. Nil is http.DefaultTransport.
	Base http.RoundTripper
	// Refuse fails a request at once when a limit has no room. By default, a request waits for its turn, in the order in
	// which all processes made their requests. It fails at once if its turn comes after the context's deadline or MaxWait.
	Refuse bool
	// MaxWait is the longest time that a request waits for room before one attempt. Zero is as long as the context allows.
	MaxWait time.Duration
	// Spread is the most by which two requests can differ in their time from the charge in the store to the arrival at the
	// API. It lengthens windows in the store, so that limits hold at the API. Zero means to learn it for each bucket from
	// how long requests take. It is first a tenth of the window, a second at most, and later at most a quarter of the
	// window and two seconds. Negative is none. It does not apply to calendar limits and approximate algorithms.
	Spread time.Duration
	// InFlight limits how many requests of a bucket are in flight at once, over all processes. Units is their number,
	// and Window the longest time that one takes, such as sash.Every(100, 10*time.Minute). A request takes a slot
	// before it asks for room. It gives it back, with a round trip, when its response's body ends or is closed. The
	// Window restarts when the request is sent, if the store can extend slots. Requests count by their call's
	// Account, or else by its Key. The credentials of a Pool count together. The zero Limit is none.
	InFlight sash.Limit
	// Prefix keeps the keys of one part of an application apart, as in [sash.Options].
	Prefix string
	// Algorithm says how windows are counted. Zero is sash.SlidingLog.
	Algorithm sash.Algorithm
	// Resolution is the step of sash.SlidingBuckets. It is zero otherwise.
	Resolution time.Duration
	// Observer is called with each decision, as in [sash.Options]. Nil is none.
	Observer sash.Observer
	// Profile says how the API describes its quotas. The zero Profile reads the usual fields.
	Profile Profile
	// KeepLimits means that an unexplained refusal only begins a cool-down. Otherwise refusals that agree also lower a limit for
	// a time: see What it learns in the documentation of this package. Fields that state a lower limit always lower it.
	KeepLimits bool
	// MaxCoolDown is the longest cool-down, whatever the API asks for: a second to 25 hours, the same in all processes.
	// Zero is an hour, or 25 hours, the longest day, if the Profile says that quotas are reset each day or month.
	MaxCoolDown time.Duration
	// Retries says which responses are retried. The zero value is none.
	Retries Retries
	// Unavailable decides about a request when the store fails. If it returns nil, the transport sends the request without a
	// charge; otherwise RoundTrip returns the error. A nil Unavailable returns the store's error, which is sash.ErrUnavailable.
	Unavailable func(req *http.Request, call Call, err error) error
}

// A Transport sends requests within the limits of their API. It is safe for concurrent use and has nothing to close.
type Transport struct {
	base    http.RoundTripper
	route   Route
	opts    Options
	limits  []sash.Limit
	prefix  string // of the keys in the store
	limiter *sash.Limiter
	cools   bool // the store keeps cool-downs
	at      *arriving
	known   *buckets
	slots   *sash.Concurrency // nil when Options have no InFlight
	budget  budget
}

// New returns a transport that charges requests to store. The limits, at least one, apply to each bucket whose Call has
// none. A nil opts is the default. The error is [sash.ErrInvalidLimit], or names the invalid option. For a nil route, which
// [Everything] returns for an invalid key, it is [sash.ErrInvalidKey]. New does no I/O. It panics if store is nil.
func New(store driver.Store, route Route, opts *Options, limits ...sash.Limit) (*Transport, error) {
	if driver.Nil(store) {
		panic("outgoing: New needs a store, such as memstore.New(nil)")
	}
	if route == nil {
		return nil, fmt.Errorf("%w: the route is nil, as Everything returns for a key that is blank or has an empty part", sash.ErrInvalidKey)
	}
	t := &Transport{route: route, opts: *cmp.Or(opts, &Options{}), limits: slices.Clone(limits), budget: budget{left: freeRetries}}
	if t.base = cmp.Or(t.opts.Base, http.DefaultTransport); driver.Nil(t.base) {
		return nil, fmt.Errorf("outgoing: Options.Base is a nil %T, which sends nothing", t.base)
	}
	if t.opts.MaxCoolDown == 0 {
		t.opts.MaxCoolDown = time.Hour
		if t.opts.Profile.Resets >= sash.CalendarDay {
			t.opts.MaxCoolDown = longestDay
		}
	}
	if d := t.opts.MaxCoolDown; d < time.Second || d > longestDay || d%time.Millisecond != 0 {
		return nil, fmt.Errorf("outgoing: MaxCoolDown is %v; it is whole milliseconds, from a second to 25 hours", d)
	}
	if t.opts.Spread > time.Minute {
		return nil, fmt.Errorf("outgoing: Spread is %v; it is at most a minute", t.opts.Spread)
	}
	if r := &t.opts.Retries; t.opts.MaxWait < 0 || r.Most < 0 || r.MaxRetryAfter < 0 {
		return nil, errors.New("outgoing: MaxWait and the numbers of Retries must not be negative")
	}
	t.opts.Retries.MaxRetryAfter = cmp.Or(t.opts.Retries.MaxRetryAfter, time.Minute)
	if t.opts.Prefix != "" {
		t.prefix = sash.Key(t.opts.Prefix) + ":"
	}
	var err error
	counting := &sash.Options{Prefix: t.opts.Prefix, Algorithm: t.opts.Algorithm, Resolution: t.opts.Resolution, Observer: t.opts.Observer}
	t.known = newBuckets()
	t.at = &arriving{Passthrough: driver.Passthrough{Store: store}, prefix: t.prefix, given: t.opts.Spread, known: t.known}
	if t.limiter, err = sash.New(t.at, counting, limits...); err != nil {
		return nil, err
	}
	if l := t.opts.InFlight; l != (sash.Limit{}) {
		if l.Window <= 0 {
			return nil, fmt.Errorf("%w: InFlight needs the longest time that a request takes as its Window", sash.ErrInvalidLimit)
		}
		slots := &sash.Options{Prefix: t.opts.Prefix, Observer: t.opts.Observer}
		if t.slots, err = sash.NewConcurrency(store, slots, l.Units, l.Window); err != nil {
			return nil, err
		}
	}
	t.cools = store.Powers()&driver.CanCool != 0
	return t, nil
}

// RoundTrip implements [http.RoundTripper]. Its own errors are [*sash.LimitedError], [*CoolDownError], [sash.ErrUnavailable], other
// errors of AllowAll, and those of the route and the context. After one of them the request was not sent, or not sent again.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	call, err := t.route(req)
	if errors.Is(err, ErrExempt) {
		return t.base.RoundTrip(req)
	}
	if err == nil {
		call, err = call.complete(t)
	}
	if err != nil {
		closeBody(req)
		return nil, err
	}
	if call.Pool != nil && originOf(req.URL) != call.Pool.origin {
		if req.Response != nil { // a redirect away from the pool's origin is followed without a credential
			return t.base.RoundTrip(req)
		}
		closeBody(req)
		return nil, fmt.Errorf("outgoing: the credentials of the pool are for %s, and the request goes to %s", call.Pool.origin, originOf(req.URL))
	}
	t.budget.add(retriesEarned)
	patience := cmp.Or(t.opts.MaxWait, math.MaxInt64) // of the first attempt
	if t.opts.Refuse {
		patience = 0
	}
	for attempt := 0; ; attempt++ {
		res, used, wanted, err := t.withSlot(req, call, patience)
		if err != nil {
			return nil, err
		}
		delay, again := time.Duration(0), false
		if t.another(req, used, res, wanted) {
			attempt--
		} else if delay, again = t.retry(req, res, wanted, attempt); !again {
			return res, nil
		}
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // the rest of a short body, so that its connection can be reused
		_ = res.Body.Close()
		if err := sleep(req.Context(), delay); err != nil {
			return nil, err
		}
		if req, err = rewound(req); err != nil {
			return nil, err
		}
		if again && t.opts.Refuse {
			patience = t.opts.Retries.MaxRetryAfter // the response is discarded, so it cannot be returned instead
		}
	}
}

// attempt sends a request once there is room, and learns from the response. It returns the call as it was sent.
func (t *Transport) attempt(req *http.Request, call Call, patience time.Duration) (*http.Response, Call, pause, error) {
	admitted, err := t.admit(req, call, patience)
	if err == nil {
		if err = t.begin(req, admitted.call); err != nil {
			giveBack(req.Context(), admitted.place)
		}
	}
	if err != nil {
		closeBody(req)
		return nil, call, pause{}, err
	}
	call = admitted.call
	sent := time.Now()
	var fresh atomic.Bool // whether it has a new connection
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { fresh.Store(!c.Reused) }}
	res, err := t.send(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)), call)
	if err != nil {
		return nil, call, pause{}, err
	}
	now := time.Now()
	if !admitted.charged.IsZero() {
		for _, s := range call.subjects() {
			t.known.took(s.Key, now.Sub(admitted.charged), fresh.Load())
		}
	}
	quotas := call.Profile.read(res.Header, now)
	if admitted.counted != nil {
		t.known.learn(call, admitted.counted, quotas, now)
	}
	wanted := pauseOf(call, res, quotas, now)
	if !wanted.refused && res.StatusCode < http.StatusInternalServerError && !call.denied(res, wanted) {
		t.known.served(call, admitted.counted, sent)
	}
	if wanted.length > 0 {
		key := call.Key
		if wanted.account && call.Account != "" && call.Pool == nil {
			key = call.Account
		}
		wanted.length = t.coolDown(req, key, wanted)
		if !wanted.refused {
			t.known.exhausted(call.Key, wanted.length)
		}
	}
	if wanted.full && admitted.counted != nil && !t.opts.KeepLimits && !explained(call, quotas) {
		t.learnFull(req, call, admitted.counted, wanted, sent, now)
	}
	call.settle(req.Context(), res, admitted.place)
	return res, call, wanted, nil
}

// send sends a request with its call's credential, if any. The request in the response does not contain the credential.
func (t *Transport) send(req *http.Request, call Call) (*http.Response, error) {
	if call.credential == nil {
		return t.base.RoundTrip(req)
	}
	signed := call.Pool.sign(req, call.credential)
	res, err := t.base.RoundTrip(signed)
	if err != nil {
		return nil, call.credential.hide(err, req, signed)
	}
	res.Request = req
	return res, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
