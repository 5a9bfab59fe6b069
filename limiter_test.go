package sash_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// panicStore is a store that must not be asked.
type panicStore struct{}

func (panicStore) Decide(context.Context, driver.Request) (driver.Answer, error) {
	panic("the store was asked")
}

// failingStore is a store that is down.
type failingStore struct{ err error }

func (s failingStore) Decide(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, s.err
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDoSaysWhoIsConstrained(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, memstore.New(nil), nil, sash.Every(25, 5*time.Second), sash.PerMinute(300))
	ran := 0
	run := func(context.Context) error { ran++; return nil }
	for range 25 {
		if err := l.Do(ctx, "x", run); err != nil {
			t.Fatal(err)
		}
	}
	err := l.Do(ctx, "x", run)
	if ran != 25 {
		t.Errorf("the function ran %d times", ran)
	}
	var limited *sash.LimitedError
	if !errors.Is(err, sash.ErrLimited) || !errors.As(err, &limited) {
		t.Fatalf("not a refusal: %v", err)
	}
	if !strings.HasPrefix(err.Error(), "x is constrained to 25 calls per 5 seconds") {
		t.Errorf("it says %q", err)
	}
	if limited.Limit.Name != "25/5s" || limited.Result.RetryAfter <= 0 || limited.Result.RetryAfter > 5*time.Second {
		t.Errorf("the refusal is by %v, retry after %v", limited.Limit, limited.Result.RetryAfter)
	}
	for _, other := range []error{sash.ErrUnavailable, context.Canceled, sash.ErrCostAboveLimit} {
		if errors.Is(err, other) {
			t.Errorf("a refusal is also %v", other)
		}
	}
	if err := l.Do(ctx, "y", func(context.Context) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Errorf("Do hides what the function returned: %v", err)
	}
}

func TestAStoreThatFailsIsAnErrorOfItsOwn(t *testing.T) {
	down := errors.New("connection refused")
	l := newLimiter(t, failingStore{down}, nil, sash.PerMinute(1))
	store := storetest.NewFaulty(memstore.New(nil))
	store.Fail(down)
	for _, call := range calls {
		err := call.make(t.Context(), newLimiter(t, store, nil, sash.PerMinute(1)), "k", 1)
		if !errors.Is(err, sash.ErrUnavailable) || !errors.Is(err, down) || errors.Is(err, sash.ErrLimited) {
			t.Errorf("%s: a failing store gives %v", call.name, err)
		}
	}
	dial := fmt.Errorf("dial: %w", context.DeadlineExceeded)
	_, err := newLimiter(t, failingStore{dial}, nil, sash.PerMinute(1)).Allow(t.Context(), "k")
	if !errors.Is(err, sash.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connection's time-out gives %v, as if the caller had given up", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = newLimiter(t, failingStore{ctx.Err()}, nil, sash.PerMinute(1)).Allow(ctx, "k")
	if !errors.Is(err, context.Canceled) || errors.Is(err, sash.ErrUnavailable) {
		t.Errorf("a caller that gave up gets %v", err)
	}
	if err := l.Reset(t.Context(), "k"); !errors.Is(err, sash.ErrUnsupported) {
		t.Errorf("Reset on a store that cannot: %v", err)
	}
}

func TestPrefixesKeepLimitersApart(t *testing.T) {
	store := memstore.New(nil)
	login := newLimiter(t, store, &sash.Options{Prefix: "login"}, sash.PerMinute(1))
	api := newLimiter(t, store, &sash.Options{Prefix: "api"}, sash.PerMinute(1))
	for _, l := range []*sash.Limiter{login, api} {
		if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if err := login.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if res, _ := login.Peek(t.Context(), "k"); res.Remaining != 1 {
		t.Errorf("after Reset %d remain", res.Remaining)
	}
	if res, _ := api.Peek(t.Context(), "k"); res.Remaining != 0 {
		t.Errorf("the other limiter was reset too: %d remain", res.Remaining)
	}
}
