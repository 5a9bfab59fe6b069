package middleware_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/middleware"
	"example.com/sash/storetest"
)

// apart charges one subject at a time, as a cluster does where keys are in different slots.
type apart struct{ *memstore.Store }

func (s apart) Do(ctx context.Context, b *driver.Batch) error {
	if len(b.Ops) > 1 && b.Ops[0].Kind == driver.Charge {
		return driver.ErrApart
	}
	return s.Store.Do(ctx, b)
}

// A refusal is that of the layer which refused, also where the store decides on one subject after the other and reports only that one.
func TestTheLayerOfARefusal(t *testing.T) {
	for name, store := range map[string]driver.Store{
		"all at once": memstore.New(nil), "one by one": apart{memstore.New(nil)},
	} {
		limiter, err := sash.New(store, &sash.Options{Prefix: "p"}, sash.PerHour(2))
		if err != nil {
			t.Fatal(err)
		}
		byName := func(name string) (string, error) { return name, nil }
		gate, err := middleware.NewGate(limiter, []middleware.Layer[string]{
			{Name: "user", Key: byName},
			{Name: "all", Key: func(string) (string, error) { return "all", nil }, Limits: []sash.Limit{sash.PerHour(3)}},
		}, middleware.GateOptions[string]{})
		if err != nil {
			t.Fatal(err)
		}
		refusedBy := func(user string) string {
			d, err := gate.Decide(t.Context(), user)
			if err != nil {
				t.Fatal(err)
			}
			for i, limits := 0, d.Result.Limits(); i < len(limits); i++ {
				if limits[i].Refused {
					return d.LayerOf(limits, i).Name
				}
			}
			return ""
		}
		for i, want := range []string{"", "", "user", "", "all"} {
			if got := refusedBy(strconv.Itoa(i / 3)); got != want {
				t.Errorf("%s: call %d is refused by layer %q, want %q", name, i+1, got, want)
			}
		}
	}
}

func TestFailures(t *testing.T) {
	down := &sash.StoreError{Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		err  error
		want middleware.Failure
	}{
		"no key":                               {&middleware.FuncError{Err: middleware.ErrNoKey}, middleware.NoKey},
		"a bad key":                            {&middleware.FuncError{Err: middleware.ErrBadKey}, middleware.BadKey},
		"a cost above the limit":               {sash.ErrCostAboveLimit, middleware.TooCostly},
		"a store that failed":                  {down, middleware.StoreFailed},
		"a wrong cost":                         {sash.ErrInvalidCost, middleware.Fault},
		"a key function with a store":          {&middleware.FuncError{Err: down}, middleware.Fault},
		"a key function with a limiter's cost": {&middleware.FuncError{Err: sash.ErrCostAboveLimit}, middleware.Fault},
	} {
		if got := middleware.FailureOf(c.err); got != c.want {
			t.Errorf("%s: failure %v, want %v", name, got, c.want)
		}
	}
}

func TestADecisionThatTakesTooLongIsAFailureOfTheStore(t *testing.T) {
	layers := []middleware.Layer[string]{{Key: middleware.Shared[string]("x")}}
	for name, c := range map[string]struct {
		deadline, timeout, took time.Duration
		failed                  bool
	}{
		"the default":                {time.Hour, 0, time.Second, true},
		"a timeout":                  {time.Hour, 3 * time.Second, 3 * time.Second, true},
		"no timeout":                 {time.Hour, -1, time.Hour, false},
		"an earlier end of the call": {time.Second, 3 * time.Second, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(memstore.New(nil))
				store.Hang(nil)
				defer store.Fail(nil)
				limiter, err := sash.New(store, nil, sash.PerHour(2))
				if err != nil {
					t.Fatal(err)
				}
				gate, err := middleware.NewGate(limiter, layers, middleware.GateOptions[string]{Timeout: c.timeout})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				began := time.Now()
				_, err = gate.Decide(ctx, "")
				if time.Since(began) != c.took || errors.Is(err, sash.ErrUnavailable) != c.failed || errors.Is(err, context.DeadlineExceeded) == c.failed {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// Clients that failed together do not return together.
func TestRetryAfterVaries(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := middleware.RetryAfter()
		if seen[d] = true; d < 5*time.Second || d > 10*time.Second {
			t.Fatalf("%v", d)
		}
	}
	if len(seen) < 90 {
		t.Errorf("%d times of 100 differ", len(seen))
	}
}
