package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

// Handlers often send nothing when the context of their query has ended. That is no success, which would reset
// the failures before it.
func TestAHandlerThatSendsNothingAfterAHangUpHasNotSucceeded(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		left int64
	}{
		"the client hung up": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, hangUp := context.WithCancel(ctx)
			time.AfterFunc(time.Second, hangUp)
			return ctx, hangUp
		}, 1}, // charged: the attempt may have got far enough
		"the server's time was up": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, 2}, // not the client's fault
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := newLimiter(t, memstore.New(nil), nil, sash.PerHour(3))
				layer := failures(httplimit.Shared("x"))
				layer.ResetOnSuccess = true
				h := newLayers(t, limiter, nil, layer)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/query" {
						<-r.Context().Done()
						return
					}
					answers(w, r)
				}))
				wantStatus(t, get(h, "POST", "/?status=401", nil), 401)
				get(h, "POST", "/query", func(r *http.Request) {
					ctx, stop := c.end(r.Context())
					t.Cleanup(stop)
					*r = *r.WithContext(ctx)
				})
				wantLeft(t, limiter, "shared:x", c.left)
			})
		})
	}
}

// http.TimeoutHandler cannot flush: the status that a handler sends after a failed flush counts.
func TestAFlushThatIsNotPossibleSendsNothing(t *testing.T) {
	limit := newFailures(t, newClock().store(), 1, nil)
	h := http.TimeoutHandler(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("flushing: %v", err)
		}
		w.WriteHeader(401)
	})), time.Minute, "")
	wantStatus(t, get(h, "POST", "/", nil), 401)
	wantStatus(t, get(h, "POST", "/", nil), 429)
}

// The failure stays charged, because its outcome is unknown; the slot is released.
func TestAnOutcomeThatPanicsKeepsNoSlot(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), nil, sash.PerHour(3))
	failed := failures(httplimit.Shared("x"))
	failed.Name = "failed"
	h := newLayers(t, limiter, &httplimit.Options{Outcome: func(*http.Request, int, http.Header) httplimit.Outcome { panic("broken") }},
		failed, httplimit.Layer{Name: "download", Key: httplimit.Shared("x"), Charge: httplimit.InFlight})(ok)
	func() {
		defer func() {
			if p := recover(); p != "broken" {
				t.Errorf("the panic has become %v", p)
			}
		}()
		get(h, "GET", "/", nil)
	}()
	wantLeft(t, limiter, "failed:shared:x", 2)
	wantLeft(t, limiter, "download:shared:x", 3)
}
