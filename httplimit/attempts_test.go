package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

// answers is a handler that answers with the status that the query names.
var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	var status int
	_, _ = fmt.Sscan(r.FormValue("status"), &status)
	if status != 0 {
		w.WriteHeader(status)
	}
})

func newAttempts(t testing.TB, opts *httplimit.Options, layers ...httplimit.AttemptLayer) httplimit.Middleware {
	t.Helper()
	m, err := httplimit.NewAttempts(layers, httplimit.ByStatus, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOnlyFailuresAreCharged(t *testing.T) {
	clock := newClock()
	h := newAttempts(t, nil, httplimit.AttemptLayer{Limiter: newLimiter(t, clock.store(), nil, sash.PerMinute(2)), Key: httplimit.PeerAddress})(answers)
	for _, target := range []string{"/?status=200", "/", "/?status=302", "/?status=500", "/?status=429"} {
		res := get(h, "POST", target, nil)
		wantField(t, res, "RateLimit", `"2/1m";r=2;t=60`)
	}
	wantStatus(t, get(h, "POST", "/?status=401", nil), 401)
	clock.advance(10 * time.Second)
	res := get(h, "POST", "/?status=422", nil)
	wantStatus(t, res, 422)
	wantField(t, res, "RateLimit", `"2/1m";r=1;t=50`) // what there was before the attempt
	res = get(h, "POST", "/?status=200", nil)
	wantStatus(t, res, 429)
	wantField(t, res, "Retry-After", "50")
	wantField(t, res, "RateLimit", `"2/1m";r=0;t=50`)
	if p := problemOf(t, res); len(p.Violated) != 1 || p.Violated[0] != "2/1m" {
		t.Errorf("violated-policies %q", p.Violated)
	}
	clock.advance(50*time.Second - time.Microsecond)
	wantStatus(t, get(h, "POST", "/?status=200", nil), 429)
	clock.advance(time.Microsecond)
	wantStatus(t, get(h, "POST", "/?status=200", nil), 200)
}

func TestSuccessForgetsWhereItMay(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, clock.store(), nil, sash.PerMinute(3))
	h := newAttempts(t, nil,
		httplimit.AttemptLayer{Name: "address", Limiter: limiter, Key: httplimit.PeerAddress},
		httplimit.AttemptLayer{Name: "account", Limiter: limiter, Key: httplimit.Join(httplimit.Header("X-User"), httplimit.PeerAddress), ResetOnSuccess: true},
	)(answers)
	ann := func(r *http.Request) { r.Header.Set("X-User", "ann") }
	wantStatus(t, get(h, "POST", "/?status=401", ann), 401)
	wantField(t, get(h, "POST", "/?status=200", ann), "RateLimit", `"address:3/1m";r=2;t=60, "account:3/1m";r=2;t=60`)
	wantField(t, get(h, "POST", "/?status=200", ann), "RateLimit", `"address:3/1m";r=2;t=60, "account:3/1m";r=3;t=60`)
}

// Twenty attempts at once and room for three failures: the others have to see those on their way.
func TestConcurrentAttemptsDoNotPassTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int64
		release := make(chan struct{})
		clock := newClock()
		h := newAttempts(t, nil, httplimit.AttemptLayer{Limiter: newLimiter(t, clock.store(), nil, sash.PerMinute(3)), Key: httplimit.PeerAddress})(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				inside.Add(1)
				<-release
				w.WriteHeader(401)
			}))
		var wg sync.WaitGroup
		var refused atomic.Int64
		for range 20 {
			wg.Go(func() {
				res := get(h, "POST", "/", nil)
				if res.status == 429 {
					refused.Add(1)
					if res.header.Get("Retry-After") != "1" {
						t.Errorf("Retry-After %q, want 1: those on their way may succeed", res.header.Get("Retry-After"))
					}
				}
			})
		}
		synctest.Wait()
		if inside.Load() < 1 || inside.Load() > 3 {
			t.Errorf("%d attempts at once, want at most 3 and at least 1", inside.Load())
		}
		close(release)
		wg.Wait()
		if n := inside.Load() + refused.Load(); n != 20 {
			t.Errorf("%d attempts were answered", n)
		}
		for inside.Load() < 3 { // those that were refused for others' sake come again
			wantStatus(t, get(h, "POST", "/", nil), 401)
		}
		wantStatus(t, get(h, "POST", "/", nil), 429)
	})
}

func TestAnInformationalStatusIsNotTheOutcome(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), nil, sash.PerMinute(1))
	server := serve(t, newAttempts(t, nil, httplimit.AttemptLayer{Limiter: limiter, Key: httplimit.PeerAddress})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnauthorized)
		})))
	wantStatus(t, visit(t, server, "POST", "/"), 401)
	wantStatus(t, visit(t, server, "POST", "/"), 429)
}

// A carefulStore does nothing for a context that has ended, as a store on a network.
type carefulStore struct{ *memstore.Store }

func (s carefulStore) Decide(ctx context.Context, req sash.Request) (sash.Result, error) {
	if err := ctx.Err(); err != nil {
		return sash.Result{}, err
	}
	return s.Store.Decide(ctx, req)
}

func TestAClientThatHangsUpIsCharged(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, carefulStore{clock.store()}, nil, sash.PerMinute(3))
	var cancel context.CancelFunc
	h := newAttempts(t, nil, httplimit.AttemptLayer{Limiter: limiter, Key: httplimit.PeerAddress})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			w.WriteHeader(401)
		}))
	get(h, "POST", "/", func(r *http.Request) {
		var ctx context.Context
		ctx, cancel = context.WithCancel(r.Context())
		*r = *r.WithContext(ctx)
	})
	res, err := limiter.Peek(t.Context(), "addr:203.0.113.9")
	if err != nil || res.Remaining != 2 {
		t.Errorf("remaining %d, %v; want 2", res.Remaining, err)
	}
}

func TestAHandlerThatPanicsLeavesNothingBehind(t *testing.T) {
	clock := newClock()
	panics := true
	h := newAttempts(t, nil, httplimit.AttemptLayer{Limiter: newLimiter(t, clock.store(), nil, sash.PerMinute(1)), Key: httplimit.PeerAddress})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if panics {
				panic(http.ErrAbortHandler)
			}
		}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		get(h, "POST", "/", nil)
	}()
	panics = false
	wantStatus(t, get(h, "POST", "/", nil), 200) // neither charged nor still on its way
}

func TestAttemptsWhenTheStoreFails(t *testing.T) {
	for _, c := range []struct {
		policy httplimit.Unavailable
		status int
	}{{httplimit.FailClosed, 503}, {httplimit.FailOpen, 200}} {
		limiter := newLimiter(t, brokenStore{err: errors.New("down")}, nil, sash.PerMinute(1))
		h := newAttempts(t, &httplimit.Options{OnUnavailable: c.policy}, httplimit.AttemptLayer{Limiter: limiter, Key: httplimit.PeerAddress})(ok)
		wantStatus(t, get(h, "POST", "/", nil), c.status)
	}
}

func TestAttemptsThatCannotWork(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), nil, sash.PerMinute(1))
	layer := httplimit.AttemptLayer{Limiter: limiter, Key: httplimit.PeerAddress}
	for name, c := range map[string]struct {
		layers  []httplimit.AttemptLayer
		outcome httplimit.OutcomeFunc
		opts    httplimit.Options
	}{
		"no outcome":           {[]httplimit.AttemptLayer{layer}, nil, httplimit.Options{}},
		"no layers":            {nil, httplimit.ByStatus, httplimit.Options{}},
		"no limiter":           {[]httplimit.AttemptLayer{{Key: httplimit.PeerAddress}}, httplimit.ByStatus, httplimit.Options{}},
		"no key":               {[]httplimit.AttemptLayer{{Limiter: limiter}}, httplimit.ByStatus, httplimit.Options{}},
		"two without names":    {[]httplimit.AttemptLayer{layer, layer}, httplimit.ByStatus, httplimit.Options{}},
		"a cost for a failure": {[]httplimit.AttemptLayer{layer}, httplimit.ByStatus, httplimit.Options{Cost: func(*http.Request) int64 { return 1 }}},
	} {
		if _, err := httplimit.NewAttempts(c.layers, c.outcome, &c.opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
