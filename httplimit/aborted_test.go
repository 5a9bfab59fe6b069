package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/httplimit"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

// A slowStore decides at once and answers later, like a store on a network; it settles late as well.
type slowStore struct {
	*memstore.Store
	decides, settles time.Duration
}

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowStore) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind == driver.Settle {
		if err := pass(ctx, s.settles); err != nil {
			return err
		}
		return s.Store.Do(ctx, b)
	}
	err := s.Store.Do(ctx, b)
	if late := pass(ctx, s.decides); late != nil {
		return late
	}
	return err
}

// Without a release, clients that hang up while the store decides would hold every slot for the hold time.
func TestClientsThatHangUpDoNotFillALimit(t *testing.T) {
	for _, charge := range []httplimit.Charge{httplimit.InFlight, httplimit.Failures} {
		for _, timeout := range []time.Duration{0, -1} {
			synctest.Test(t, func(t *testing.T) {
				store := &slowStore{Store: memstore.New(nil), decides: 20 * time.Millisecond}
				limiter := newLimiter(t, store, nil, sash.Every(3, 10*time.Minute))
				ran := 0
				h := newLayers(t, limiter, &httplimit.Options{Timeout: timeout}, httplimit.Layer{Key: httplimit.Shared("x"), Charge: charge})(
					http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ }))
				for range 10 {
					ctx, gone := context.WithCancel(t.Context())
					time.AfterFunc(time.Millisecond, gone)
					wantStatus(t, get(h, "POST", "/", func(r *http.Request) { *r = *r.WithContext(ctx) }), 499)
					time.Sleep(time.Second)
				}
				if ran != 0 {
					t.Errorf("the handler ran %d times for clients that had gone", ran)
				}
				wantLeft(t, limiter, "shared:x", 3)
			})
		}
	}
}

// A leaver is a context that ends without closing Done.
type leaver struct {
	context.Context
	gone bool
}

func (l *leaver) Err() error {
	if l.gone {
		return context.Canceled
	}
	return nil
}

// The store admits a call whose client leaves before the answer arrives.
func TestTheHandlerDoesNotRunForAClientThatHasGone(t *testing.T) {
	client, inner := &leaver{Context: context.Background()}, memstore.New(nil)
	limiter := newLimiter(t, drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
		err := inner.Do(ctx, b)
		client.gone = client.gone || b.Ops[0].Kind == driver.Charge
		return err
	}), nil, sash.Every(3, 10*time.Minute))
	h := newLayers(t, limiter, nil, failures(httplimit.Shared("x")))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
	wantStatus(t, get(h, "POST", "/", func(r *http.Request) { *r = *r.WithContext(client) }), 499)
	wantLeft(t, limiter, "shared:x", 3)
}

// Four layers of a store that hangs: the response waits for the Timeout, and not for a second for each.
func TestAResponseDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: memstore.New(nil), settles: time.Hour}
		var layers []httplimit.Layer
		for _, name := range []string{"a", "b", "c", "d"} {
			layers = append(layers, httplimit.Layer{Name: name, Key: httplimit.Shared("x"), Charge: httplimit.InFlight})
		}
		var reported atomic.Int64
		h := newLayers(t, newLimiter(t, store, nil, sash.Every(5, time.Minute)), &httplimit.Options{
			Timeout: 50 * time.Millisecond,
			OnError: func(_ *http.Request, err error) {
				if !errors.Is(err, sash.ErrUnavailable) {
					t.Error(err)
				}
				reported.Add(1)
			},
		}, layers...)(ok)
		began := time.Now()
		wantStatus(t, get(h, "GET", "/", nil), 200)
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("the response took %v", took)
		}
		time.Sleep(time.Second)
		if reported.Load() != 4 {
			t.Errorf("OnError received %d errors of 4 charges that could not be released", reported.Load())
		}
	})
}

// Handlers often send nothing when the context of their query has ended. That is no success, which would reset the failures before it.
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
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
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
	}
}

// The failure stays charged, because its outcome is unknown; the slot is released.
func TestAnOutcomeThatPanicsKeepsNoSlot(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), nil, sash.PerHour(3))
	failed := failures(httplimit.Shared("x"))
	failed.Name = "failed"
	h := newLayers(t, limiter, &httplimit.Options{Outcome: func(*http.Request, int, http.Header) httplimit.Outcome { panic("broken") }},
		failed, httplimit.Layer{Name: "download", Key: httplimit.Shared("x"), Charge: httplimit.InFlight})(ok)
	wantPanic(t, "broken", func() { get(h, "GET", "/", nil) })
	wantLeft(t, limiter, "failed:shared:x", 2)
	wantLeft(t, limiter, "download:shared:x", 3)
}
