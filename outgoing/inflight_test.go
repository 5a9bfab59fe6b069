package outgoing_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
	"example.com/sash/storetest"
)

// A slowAPI responds after a while, with a body that takes as long again. It counts the requests in flight.
type slowAPI struct {
	takes       time.Duration
	free        int64 // the first so many take no time
	inside, all atomic.Int64
	most        atomic.Int64
}

func (u *slowAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	takes := u.takes
	if u.all.Add(1) <= u.free {
		takes = 0
	}
	n := u.inside.Add(1)
	for {
		if most := u.most.Load(); n <= most || u.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(takes)
	body := &slowBody{Reader: strings.NewReader("done"), end: func() { u.inside.Add(-1) }, takes: takes}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: req}, nil
}

type slowBody struct {
	io.Reader
	takes time.Duration
	end   func()
	once  sync.Once
}

func (b *slowBody) Close() error {
	b.once.Do(func() {
		time.Sleep(b.takes)
		b.end()
	})
	return nil
}

func inFlight(t *testing.T, opts outgoing.Options, limits ...sash.Limit) *http.Client {
	t.Helper()
	return sharing(t, memstore.New(nil), opts, limits...)
}

func sharing(t *testing.T, store driver.Store, opts outgoing.Options, limits ...sash.Limit) *http.Client {
	t.Helper()
	rt := newRoundTripper(t, store, outgoing.Everything("api"), &opts, limits...)
	return &http.Client{Transport: rt}
}

func fly(ctx context.Context, t *testing.T, c *http.Client) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(req)
}

func TestNoMoreRequestsAreInFlightThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &slowAPI{takes: 50 * time.Millisecond}
		store := memstore.New(nil)
		opts := outgoing.Options{Base: u, InFlight: sash.Every(3, time.Minute)}
		processes := []*http.Client{sharing(t, store, opts, sash.PerHour(1000)), sharing(t, store, opts, sash.PerHour(1000))}
		began := time.Now()
		var group sync.WaitGroup
		for i := range 30 {
			group.Go(func() {
				res, err := fly(t.Context(), t, processes[i%2])
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
			})
		}
		group.Wait()
		if u.most.Load() != 3 || u.all.Load() != 30 {
			t.Errorf("%d of %d requests were in flight at once, want 3 of 30", u.most.Load(), u.all.Load())
		}
		if took, most := time.Since(began), 10*100*time.Millisecond*10/9; took > most {
			t.Errorf("they took %v; 90 %% of what is possible is %v", took, most)
		}
	})
}

func TestASlotIsHeldUntilTheBodyEnds(t *testing.T) {
	cut := errors.New("connection reset")
	for name, c := range map[string]struct {
		body io.ReadCloser
		err  error
		end  func(*http.Response)
		held time.Duration
	}{
		"closed":       {io.NopCloser(strings.NewReader("text")), nil, func(r *http.Response) { _ = r.Body.Close() }, 0},
		"read":         {io.NopCloser(strings.NewReader("text")), nil, func(r *http.Response) { _, _ = io.ReadAll(r.Body) }, 0},
		"cut off":      {io.NopCloser(errorReader{cut}), nil, func(r *http.Response) { _, _ = io.ReadAll(r.Body) }, 0},
		"read in part": {io.NopCloser(strings.NewReader("text")), nil, func(r *http.Response) { _, _ = r.Body.Read(make([]byte, 1)) }, time.Minute},
		"no body":      {http.NoBody, nil, func(*http.Response) {}, 0},
		"never closed": {io.NopCloser(strings.NewReader("text")), nil, func(*http.Response) {}, time.Minute},
		"not sent":     {nil, cut, func(*http.Response) {}, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			base := roundTripper(func(req *http.Request) (*http.Response, error) {
				if c.err != nil {
					return nil, c.err
				}
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: c.body, Request: req}, nil
			})
			opts := outgoing.Options{Base: base, InFlight: sash.Every(1, time.Minute)}
			rt := newRoundTripper(t, memstore.New(nil), outgoing.Everything("api"), &opts, sash.PerHour(1000))
			began := time.Now()
			trip := func() *http.Response { // not by a client, which closes bodies itself
				req := newRequest(t, http.MethodGet, "http://api.test/", http.NoBody)
				res, err := rt.RoundTrip(req)
				if !errors.Is(err, c.err) {
					t.Fatal(err)
				}
				return res
			}
			c.end(trip()) //nolint:bodyclose // when it is closed is what this is about
			trip()        //nolint:bodyclose // when it is closed is what this is about
			if took := time.Since(began); took < c.held || took > c.held+time.Second/10 {
				t.Errorf("the next request was sent after %v, want %v", took, c.held)
			}
		})
	}
}

func TestARequestWithoutASlotFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := sash.Every(1, time.Hour)
		u := &slowAPI{takes: time.Millisecond}
		full := func(opts outgoing.Options) *http.Client {
			opts.Base, opts.InFlight = u, one
			c := inFlight(t, opts, sash.PerHour(1000))
			if _, err := fly(t.Context(), t, c); err != nil { //nolint:bodyclose // it stays open
				t.Fatal(err)
			}
			return c // the body is never closed
		}
		var limited *sash.LimitedError
		_, err := fly(t.Context(), t, full(outgoing.Options{Mode: outgoing.Refuse})) //nolint:bodyclose // there is no answer
		if !errors.As(err, &limited) || !limited.AtOnce || limited.Limit.Units != 1 {
			t.Errorf("refused: %v", err)
		}
		began := time.Now()
		_, err = fly(t.Context(), t, full(outgoing.Options{MaxWait: 7 * time.Second})) //nolint:bodyclose // there is no answer
		if took := time.Since(began); !errors.Is(err, outgoing.ErrMaxWait) || !errors.Is(err, sash.ErrLimited) || took > 8*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := fly(ctx, t, full(outgoing.Options{})); !errors.Is(err, context.DeadlineExceeded) { //nolint:bodyclose // there is no answer
			t.Errorf("at the deadline: %v", err)
		}
		gone, leave := context.WithCancelCause(t.Context())
		cause := errors.New("the user went away")
		time.AfterFunc(time.Second, func() { leave(cause) })
		if _, err := fly(gone, t, full(outgoing.Options{})); !errors.Is(err, cause) { //nolint:bodyclose // there is no answer
			t.Errorf("cancelled: %v", err)
		}
	})
}

// A request that waits for room holds its slot, and the hold time begins anew when it is sent. When the wait was longer
// than that, it takes another slot.
func TestAWaitForRoomTakesNothingFromTheHoldTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hold = 20 * time.Second
		u := &slowAPI{takes: 9 * time.Second, free: 3}
		c := inFlight(t, outgoing.Options{Base: u, InFlight: sash.Every(1, hold), Spread: -1}, sash.Every(3, 30*time.Second))
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				res, err := fly(t.Context(), t, c)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
			})
		}
		group.Wait()
		if u.most.Load() != 1 || u.all.Load() != 6 {
			t.Errorf("%d of %d requests were in flight at once", u.most.Load(), u.all.Load())
		}
	})
}

func TestALimitOfRequestsInFlightIsChecked(t *testing.T) {
	for _, l := range []sash.Limit{{Units: 5}, {Window: time.Minute}, {Units: 5, Period: sash.CalendarDay}} {
		_, err := outgoing.New(memstore.New(nil), outgoing.Everything("api"), &outgoing.Options{InFlight: l}, sash.PerHour(1))
		if !errors.Is(err, sash.ErrInvalidLimit) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

func TestAStoreThatFailsGivesNoSlots(t *testing.T) {
	for name, open := range map[string]bool{"open": true, "closed": false} {
		t.Run(name, func(t *testing.T) {
			store := storetest.NewFaulty(memstore.New(nil))
			store.Fail(errors.New("broken"))
			u := &slowAPI{}
			opts := outgoing.Options{Base: u, InFlight: sash.Every(1, time.Hour)}
			if open {
				opts.Unavailable = func(*http.Request, outgoing.Call, error) error { return nil }
			}
			rt := newRoundTripper(t, store, outgoing.Everything("api"), &opts, sash.PerHour(1000))
			for range 2 {
				if _, err := get(t.Context(), rt); open != (err == nil) || !open && !errors.Is(err, sash.ErrUnavailable) {
					t.Errorf("the error is %v", err)
				}
			}
			if sent := u.all.Load(); sent != 0 != open {
				t.Errorf("%d requests were sent", sent)
			}
		})
	}
}

// A slot is free as soon as the body has ended, also while the store has not heard of it yet.
func TestASlotOnItsWayBackIsNotInUse(t *testing.T) {
	once := func(t *testing.T, rt http.RoundTripper) {
		if status, err := get(t.Context(), rt); err != nil || status != http.StatusOK {
			t.Fatalf("%d, %v", status, err)
		}
	}
	opts := outgoing.Options{Mode: outgoing.Refuse, InFlight: sash.Every(1, time.Minute)}
	t.Run("one after the other", func(t *testing.T) {
		rt := newTransport(t, newStore(), answer(200, "X-Is: served"), opts, sash.PerMinute(1000))
		for range 200 {
			once(t, rt)
		}
	})
	t.Run("with another credential", func(t *testing.T) {
		for range 20 {
			all := tokens(3)
			opts.Base = handled(newTokenAPI(1000, time.Minute, all[2]).ServeHTTP)
			once(t, pooled(t, newStore(), newPool(t, apiTest, all...), opts, sash.PerMinute(1000)))
		}
	})
}
