package httplimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/httplimit"
	"example.com/sash/internal/drivertest"
)

// answers is a handler that answers with the status that the query names.
var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	var status int
	_, _ = fmt.Sscan(r.FormValue("status"), &status)
	if status != 0 {
		w.WriteHeader(status)
	}
})

func failures(key httplimit.KeyFunc, limits ...sash.Limit) httplimit.Layer {
	return httplimit.Layer{Key: key, Limits: limits, Charge: httplimit.Failures}
}

// newFailures returns a middleware with n failures a minute for an address.
func newFailures(t testing.TB, store driver.Store, n int64, opts *httplimit.Options) httplimit.Middleware {
	t.Helper()
	return newLayers(t, newLimiter(t, store, nil, sash.PerMinute(n)), opts, failures(httplimit.PeerAddress))
}

func TestOnlyFailuresAreCharged(t *testing.T) {
	clock := newClock()
	h := newFailures(t, clock.store(), 2, nil)(answers)
	for _, target := range []string{"/?status=200", "/", "/?status=302", "/?status=500", "/?status=429"} {
		res := get(h, "POST", target, nil)
		wantField(t, res, "RateLimit", `"2/1m";r=1;t=60`) // as if the attempt failed
	}
	wantStatus(t, get(h, "POST", "/?status=401", nil), 401)
	clock.Advance(10 * time.Second)
	res := get(h, "POST", "/?status=422", nil)
	wantStatus(t, res, 422)
	wantField(t, res, "RateLimit", `"2/1m";r=0;t=50`)
	res = get(h, "POST", "/?status=200", nil)
	wantStatus(t, res, 429)
	wantField(t, res, "Retry-After", "50")
	wantField(t, res, "RateLimit", `"2/1m";r=0;t=50`)
	if p := problemOf(t, res); len(p.Violated) != 1 || p.Violated[0] != "2/1m" {
		t.Errorf("violated-policies %q", p.Violated)
	}
	clock.Advance(50*time.Second - time.Microsecond)
	wantStatus(t, get(h, "POST", "/?status=200", nil), 429)
	clock.Advance(time.Microsecond)
	wantStatus(t, get(h, "POST", "/?status=200", nil), 200)
}

func wantLeft(t *testing.T, l *sash.Limiter, key string, want int64) {
	t.Helper()
	if res, err := l.Peek(t.Context(), key); err != nil || res.Remaining != want {
		t.Errorf("%d left for %s, want %d: %v", res.Remaining, key, want, err)
	}
}

func TestAnInformationalStatusIsNotTheOutcome(t *testing.T) {
	server := serve(t, newFailures(t, newClock().store(), 1, nil)(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnauthorized)
		})))
	wantStatus(t, visit(t, server, "POST", "/"), 401)
	wantStatus(t, visit(t, server, "POST", "/"), 429)
}

// A panic has the outcome of the status that was sent before it, or of 500. It goes on to the server.
func TestAHandlerThatPanicsIsSettled(t *testing.T) {
	for sent, left := range map[int]int64{0: 1, 401: 0, 200: 1} {
		limiter := newLimiter(t, newClock().store(), nil, sash.PerMinute(1))
		h := newLayers(t, limiter, nil, failures(httplimit.Shared("x")))(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if sent != 0 {
					w.WriteHeader(sent)
				}
				panic(http.ErrAbortHandler)
			}))
		wantPanic(t, http.ErrAbortHandler, func() { get(h, "POST", "/", nil) })
		wantLeft(t, limiter, "shared:x", left)
	}
}

func TestLayersThatCannotBeCharged(t *testing.T) {
	store := newClock().store()
	forgetless := drivertest.Over(store, nil)
	forgetless.Without = driver.CanForget
	limiter := newLimiter(t, store, nil, sash.PerMinute(1))
	two := newLimiter(t, store, nil, sash.PerMinute(1), sash.PerHour(2))
	key := httplimit.PeerAddress
	for name, c := range map[string]struct {
		limiter *sash.Limiter
		layer   httplimit.Layer
		open    bool
		says    string
	}{
		"failures with a store that cannot settle":   {newLimiter(t, drivertest.Plain(store), nil, sash.PerMinute(1)), failures(key), false, "driver.CanSettle"},
		"in flight with a store that cannot settle":  {newLimiter(t, drivertest.Plain(store), nil, sash.PerMinute(1)), httplimit.Layer{Key: key, Charge: httplimit.InFlight}, false, "driver.CanSettle"},
		"refused calls that count":                   {newLimiter(t, store, &sash.Options{CountRefused: true}, sash.PerMinute(1)), failures(key), false, "CountRefused"},
		"failures by an algorithm that is not exact": {newLimiter(t, store, &sash.Options{Algorithm: sash.GCRA}, sash.PerMinute(1)), failures(key), false, "gcra"},
		"in flight by a fixed window":                {newLimiter(t, store, &sash.Options{Algorithm: sash.FixedWindow}, sash.PerMinute(1)), httplimit.Layer{Key: key, Charge: httplimit.InFlight}, false, "fixed-window"},
		"steps that are reset":                       {newLimiter(t, store, &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: time.Second}, sash.PerMinute(1)), httplimit.Layer{Key: key, Charge: httplimit.Failures, ResetOnSuccess: true}, false, "sliding-buckets"},
		"two limits over one window":                 {limiter, httplimit.Layer{Key: key, Limits: []sash.Limit{sash.PerMinute(60), sash.PerMinute(30)}}, false, "same window"},
		"failures that fail open":                    {limiter, failures(key), true, "cannot be configured open"},
		"requests that are forgotten":                {limiter, httplimit.Layer{Key: key, ResetOnSuccess: true}, false, "Failures"},
		"a store that cannot reset":                  {newLimiter(t, forgetless, nil, sash.PerMinute(1)), httplimit.Layer{Key: key, Charge: httplimit.Failures, ResetOnSuccess: true}, false, "driver.CanForget"},
		"in flight with two limits":                  {two, httplimit.Layer{Key: key, Charge: httplimit.InFlight}, false, "one limit"},
		"in flight until midnight":                   {limiter, httplimit.Layer{Key: key, Charge: httplimit.InFlight, Limits: []sash.Limit{sash.PerCalendar(1, sash.CalendarDay, nil)}}, false, "one limit"},
		"an unknown charge":                          {limiter, httplimit.Layer{Key: key, Charge: 9}, false, "unknown charge"},
	} {
		opts := &httplimit.Options{FailOpen: c.open}
		if _, err := httplimit.NewLayers(c.limiter, []httplimit.Layer{c.layer}, opts); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that contains %q", name, err, c.says)
		}
	}
}

// inFlight allows n requests of an address at once, each for 10 minutes at most.
func inFlight(n int64) httplimit.Layer {
	return httplimit.Layer{
		Name: "download", Key: httplimit.PeerAddress, Charge: httplimit.InFlight,
		Limits: []sash.Limit{sash.Every(n, 10*time.Minute)},
	}
}

// A refusal by any layer charges nothing, and each kind releases its own charges.
func TestLayersOfAllKindsAreOneDecision(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, clock.store(), nil, sash.PerMinute(5))
	failed := failures(httplimit.PeerAddress, sash.PerMinute(2))
	failed.Name = "failed"
	var inside func()
	h := newLayers(t, limiter, nil, httplimit.Layer{Name: "all", Key: httplimit.PeerAddress}, failed, inFlight(1))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if inside != nil {
				inside()
			}
			answers(w, r)
		}))
	left := func(all, failed, download int64) { // of the limiter's five
		t.Helper()
		for key, want := range map[string]int64{"all": all, "failed": failed, "download": download} {
			wantLeft(t, limiter, key+":addr:203.0.113.9", want)
		}
	}
	inside = func() {
		inside = nil
		left(4, 4, 4)
		res := get(h, "GET", "/", nil)
		wantStatus(t, res, 429)
		wantField(t, res, "Retry-After", "1")
		if p := problemOf(t, res); len(p.Violated) != 1 || p.Violated[0] != "download:1 at once" {
			t.Errorf("violated-policies %q", p.Violated)
		}
		left(4, 4, 4)
	}
	wantStatus(t, get(h, "GET", "/?status=401", nil), 401)
	left(4, 4, 5)
	wantStatus(t, get(h, "GET", "/?status=200", nil), 200)
	left(3, 4, 5)
	wantStatus(t, get(h, "GET", "/?status=401", nil), 401)
	left(2, 3, 5)
	res := get(h, "GET", "/?status=200", nil)
	wantStatus(t, res, 429)
	wantField(t, res, "Retry-After", "60")
	left(2, 3, 5)
}

func TestFieldsOfALimitInFlight(t *testing.T) {
	for dialect, want := range map[httplimit.Dialect]struct{ admitted, refused fields }{
		httplimit.Draft11: {
			fields{"RateLimit-Policy": `"all:9/1m";q=9;w=60, "download:1 at once";q=1;qu="concurrent-requests"`, "RateLimit": `"all:9/1m";r=8;t=60, "download:1 at once";r=0`},
			fields{"RateLimit-Policy": `"all:9/1m";q=9;w=60, "download:1 at once";q=1;qu="concurrent-requests"`, "RateLimit": `"all:9/1m";r=8;t=1, "download:1 at once";r=0`, "Retry-After": "1"},
		},
		httplimit.Draft07: { // the other dialects choose the limit as it does
			fields{"RateLimit-Policy": "9;w=60", "RateLimit": "limit=9, remaining=8, reset=60"},
			fields{"Retry-After": "1"},
		},
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			var h http.Handler
			first := true
			h = newLayers(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(9)), &httplimit.Options{Dialect: dialect},
				httplimit.Layer{Name: "all", Key: httplimit.PeerAddress}, inFlight(1))(
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					if first {
						first = false
						wantFields(t, get(h, "GET", "/", nil), want.refused)
					}
				}))
			wantFields(t, get(h, "GET", "/", nil), want.admitted)
		})
	}
}
