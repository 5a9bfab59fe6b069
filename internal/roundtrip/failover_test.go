package roundtrip

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
	"example.com/sash/storetest"
)

var errDown = errors.New("connection reset by peer")

// guard returns a failover store over a store, as one of two instances.
func guard(t *testing.T, inner driver.Store, mode failover.Mode) *failover.Store {
	t.Helper()
	store, err := failover.New(inner, &failover.Options{
		Modes:     failover.Modes{Rules: []failover.Rule{{Mode: mode}}},
		Local:     memstore.New(nil),
		Instances: func() int { return 2 },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // ends the goroutine that writes the backlog
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = store.Close(over)
	})
	return store
}

// The client's own store can fail too: the client goes on over its share, and the API refuses nothing.
func TestAClientThatDecidesLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := storetest.NewFaulty(newStore())
		a := newAPI(t, newStore(), arrangement{limits: []sash.Limit{sash.PerMinute(60)}, opts: httplimit.Options{Dialect: httplimit.NoFields}})
		client := newClient(t, guard(t, inner, failover.Local), a, sash.PerMinute(60))
		inner.Fail(errDown)
		stream(t, []*outgoing.Transport{client}, 1, lasts)
		if n := a.answered(http.StatusOK); n < 300*90/100 || n > 300+30 {
			t.Errorf("%d requests were sent in ten minutes, of 300 in its half", n)
		}
		if n := a.answered(http.StatusTooManyRequests); n > 0 {
			t.Errorf("the API refused %d requests", n)
		}
	})
}

// Behind a store that is open, a response does not report limits that nothing counts, and a login admits no
// guesses.
func TestAnOpenStoreReportsNoLimitsAndOpensNoLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := storetest.NewFaulty(newStore())
		inner.Fail(errDown)
		limiter, err := sash.New(guard(t, inner, failover.Open), nil, sash.PerMinute(5))
		if err != nil {
			t.Fatal(err)
		}
		for charge, want := range map[httplimit.Charge]int{
			httplimit.Requests: http.StatusOK,
			httplimit.Failures: http.StatusServiceUnavailable,
		} {
			limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{{Key: httplimit.PeerAddress, Charge: charge}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			reached := false
			handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			if w.Code != want || reached != (want == http.StatusOK) || w.Header().Get("RateLimit") != "" {
				t.Errorf("%v: %d, %v, the handler ran: %v", charge, w.Code, w.Header(), reached)
			}
		}
	})
}
