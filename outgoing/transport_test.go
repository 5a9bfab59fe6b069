package outgoing_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

func TestWaitFailsAtOnceWhenTheDeadlineCannotBeMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, newStore(), answer(200), outgoing.Options{}, sash.PerMinute(1))
		ok(t, rt)
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		start := time.Now()
		_, err := get(ctx, rt)
		var limited *sash.LimitedError
		if !errors.As(err, &limited) || !errors.Is(err, context.DeadlineExceeded) || limited.Limit.Name != "1/1m" {
			t.Errorf("the error is %v", err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v to fail", d)
		}
		client := &http.Client{Transport: rt, Timeout: 61 * time.Second} // a client's timeout is a deadline too
		res, err := client.Get("http://api.test/")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if d := time.Since(start); d != time.Minute {
			t.Errorf("the second call went out after %v, want a minute", d)
		}
	})
}

// counting serves requests and counts them.
func counting(n *int) handled { return func(http.ResponseWriter, *http.Request) { *n++ } }

func TestSeveralBucketsAreOneDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sent := newStore(), 0
		route := func(req *http.Request) (outgoing.Call, error) {
			call := outgoing.Call{Key: "api", Cost: 1}
			if req.Method == http.MethodPut {
				call.Cost = 100
				call.Also = []sash.Subject{{Key: "expensive", Limits: []sash.Limit{sash.PerHour(2)}}}
			}
			return call, nil
		}
		rt := newRoundTripper(t, store, route, &outgoing.Options{Refuse: true, Base: counting(&sent)}, sash.PerDay(1000))
		var limited *sash.LimitedError
		for i := range 3 {
			if _, err := send(t.Context(), rt, http.MethodPut, nil); (err != nil) != (i == 2) || err != nil && !errors.As(err, &limited) {
				t.Fatal(i, err)
			}
		}
		if limited.Key != "expensive" || sent != 2 {
			t.Errorf("%v after %d requests", limited, sent)
		}
		limiter := newLimiter(t, store, nil, sash.PerDay(1000))
		if res, err := limiter.Peek(t.Context(), "api"); err != nil || res.Remaining != 800 {
			t.Errorf("%d of 1000 are left after two calls of 100 and a refusal: %v", res.Remaining, err)
		}
	})
}

func TestWhenTheStoreFailsTheCallerChooses(t *testing.T) {
	sent := 0
	route := func(req *http.Request) (outgoing.Call, error) {
		if req.Method == http.MethodPut {
			return outgoing.Call{Key: "api", Cost: 100}, nil
		}
		return outgoing.Call{Key: "api"}, nil
	}
	for name, c := range map[string]struct {
		unavailable func(*http.Request, outgoing.Call, error) error
		sent        int
	}{
		"closed by default": {nil, 0},
		"open for calls of one unit": {func(_ *http.Request, call outgoing.Call, err error) error {
			if call.Cost > 1 {
				return err
			}
			return nil
		}, 1},
	} {
		sent = 0
		rt := newRoundTripper(t, downStore(), route, &outgoing.Options{Unavailable: c.unavailable, Base: counting(&sent)}, sash.PerDay(100))
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			if _, err := send(t.Context(), rt, method, nil); err != nil && !errors.Is(err, sash.ErrUnavailable) {
				t.Error(name, err)
			}
		}
		if sent != c.sent {
			t.Errorf("%s: %d of 2 calls were sent", name, sent)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	day, all := sash.PerCalendar(100, sash.CalendarDay, nil), []sash.Limit{sash.PerDay(1)}
	for name, c := range map[string]struct {
		opts   outgoing.Options
		limits []sash.Limit
		is     error // that has to be it
	}{
		"no limit":                   {outgoing.Options{}, nil, nil},
		"cool-downs without end":     {outgoing.Options{MaxCoolDown: 26 * time.Hour}, all, nil},
		"negative retries":           {outgoing.Options{Retries: outgoing.Retries{Most: -1}}, all, nil},
		"a wait below zero":          {outgoing.Options{MaxWait: -1}, all, nil},
		"a spread above a minute":    {outgoing.Options{Spread: time.Minute + 1}, all, nil},
		"in flight without a window": {outgoing.Options{InFlight: sash.Limit{Units: 5}}, all, sash.ErrInvalidLimit},
		"in flight without units":    {outgoing.Options{InFlight: sash.Limit{Window: time.Minute}}, all, sash.ErrInvalidLimit},
		"in flight by the calendar":  {outgoing.Options{InFlight: day}, all, sash.ErrInvalidLimit},
	} {
		_, err := outgoing.New(newStore(), outgoing.Everything("api"), &c.opts, c.limits...)
		if err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
