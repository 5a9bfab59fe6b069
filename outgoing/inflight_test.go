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
	"testing/iotest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
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
		"cut off":      {io.NopCloser(iotest.ErrReader(cut)), nil, func(r *http.Response) { _, _ = io.ReadAll(r.Body) }, 0},
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
			rt := newRoundTripper(t, newStore(), outgoing.Everything("api"), &opts, sash.PerHour(1000))
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
	cause := errors.New("the user went away")
	for name, c := range map[string]struct {
		opts   outgoing.Options
		within time.Duration // of the context
		leaves bool
		want   error
		took   time.Duration // at most a second more
	}{
		"refused":         {outgoing.Options{Refuse: true}, time.Hour, false, sash.ErrLimited, 0},
		"MaxWait":         {outgoing.Options{MaxWait: 7 * time.Second}, time.Hour, false, outgoing.ErrMaxWait, 7 * time.Second},
		"at the deadline": {outgoing.Options{}, 5 * time.Second, false, context.DeadlineExceeded, 5 * time.Second},
		"cancelled":       {outgoing.Options{}, time.Hour, true, cause, time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			c.opts.Base, c.opts.InFlight = &slowAPI{takes: time.Millisecond}, sash.Every(1, time.Hour)
			rt := newRoundTripper(t, newStore(), outgoing.Everything("api"), &c.opts, sash.PerHour(1000))
			req := newRequest(t, http.MethodGet, "http://api.test/", nil)
			if _, err := rt.RoundTrip(req); err != nil { //nolint:bodyclose // it stays open
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			ctx, leave := context.WithCancelCause(ctx)
			if c.leaves {
				time.AfterFunc(time.Second, func() { leave(cause) })
			}
			began := time.Now()
			_, err := rt.RoundTrip(req.WithContext(ctx)) //nolint:bodyclose // there is no answer
			if took := time.Since(began); !errors.Is(err, c.want) || took < c.took-time.Second || took > c.took+time.Second {
				t.Errorf("after %v: %v", took, err)
			}
			var limited *sash.LimitedError
			if name == "refused" && (!errors.As(err, &limited) || !limited.AtOnce || limited.Limit.Units != 1) {
				t.Errorf("%+v", limited)
			}
			if name == "MaxWait" && !errors.Is(err, sash.ErrLimited) {
				t.Error(err)
			}
			leave(nil)
		})
	}
}
