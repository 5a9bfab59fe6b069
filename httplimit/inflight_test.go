package httplimit_test

import (
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

// inFlight allows n requests of an address at once, each for 10 minutes at most.
func inFlight(n int64) httplimit.Layer {
	return httplimit.Layer{
		Name: "download", Key: httplimit.PeerAddress, Charge: httplimit.InFlight,
		Limits: []sash.Limit{sash.Every(n, 10*time.Minute)},
	}
}

func TestRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int64
		h := newLayers(t, newLimiter(t, memstore.New(nil), nil, sash.PerMinute(1)), nil, inFlight(3))(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if n := inside.Add(1); n > 3 {
					t.Errorf("%d at once", n)
				}
				time.Sleep(time.Second)
				inside.Add(-1)
			}))
		for range 3 { // three at once, and far more in a minute than the limiter's own limit has
			var group sync.WaitGroup
			var refused atomic.Int64
			for range 10 {
				group.Go(func() {
					if res := get(h, "GET", "/", nil); res.status == 429 {
						refused.Add(1)
						wantField(t, res, "Retry-After", "1")
					}
				})
			}
			group.Wait()
			if refused.Load() != 7 {
				t.Errorf("%d refused of 10, want 7", refused.Load())
			}
		}
	})
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
		httplimit.Draft07: {
			fields{"RateLimit-Policy": "9;w=60", "RateLimit": "limit=9, remaining=8, reset=60"},
			fields{"Retry-After": "1"},
		},
		httplimit.Draft06: {
			fields{"RateLimit-Policy": "9;w=60", "RateLimit-Limit": "9", "RateLimit-Remaining": "8", "RateLimit-Reset": "60"},
			fields{"Retry-After": "1"},
		},
		httplimit.LegacyUnix: { // 1772367000.250 is rounded up
			fields{"X-RateLimit-Limit": "9", "X-RateLimit-Remaining": "8", "X-RateLimit-Reset": "1772367061"},
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

func TestOlderDialectsOmitALimitInFlight(t *testing.T) {
	h := newLayers(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(9)), &httplimit.Options{Dialect: httplimit.Draft06}, inFlight(1))(ok)
	res := get(h, "GET", "/", nil)
	wantStatus(t, res, 200)
	wantField(t, res, "RateLimit-Limit", "")
	wantField(t, res, "RateLimit-Policy", "")
}

// Options.Cost is the units of a request for layers of Requests; it is one request in flight all the same.
func TestACostIsNotANumberInFlight(t *testing.T) {
	h := newLayers(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(9)), &httplimit.Options{Cost: func(*http.Request) int64 { return 5 }},
		httplimit.Layer{Name: "all", Key: httplimit.PeerAddress}, inFlight(2))(ok)
	wantField(t, get(h, "GET", "/", nil), "RateLimit", `"all:9/1m";r=4;t=60, "download:2 at once";r=1`)
}
