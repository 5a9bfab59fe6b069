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

func TestWrongCallsNeverReachTheStore(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, panicStore{}, nil, sash.PerHour(100), sash.PerMinute(5))
	for name, c := range map[string]struct {
		key  string
		cost int64
		want error
	}{
		"empty key":        {"", 1, sash.ErrInvalidKey},
		"blank key":        {" \t\r\n\u00a0", 1, sash.ErrInvalidKey},
		"endless key":      {strings.Repeat("k", sash.MaxKeyLength+1), 1, sash.ErrInvalidKey},
		"no cost":          {"k", 0, sash.ErrInvalidCost},
		"negative cost":    {"k", -1, sash.ErrInvalidCost},
		"above one limit":  {"k", 6, sash.ErrCostAboveLimit},
		"above all limits": {"k", 101, sash.ErrCostAboveLimit},
	} {
		if _, err := l.AllowN(ctx, c.key, c.cost); !errors.Is(err, c.want) {
			t.Errorf("%s: AllowN: %v, want %v", name, err, c.want)
		}
		if err := l.WaitN(ctx, c.key, c.cost); !errors.Is(err, c.want) {
			t.Errorf("%s: WaitN: %v, want %v", name, err, c.want)
		}
		if _, err := l.AllowAll(ctx, sash.Subject{Key: c.key, Cost: c.cost}); !errors.Is(err, c.want) {
			t.Errorf("%s: AllowAll: %v, want %v", name, err, c.want)
		}
	}
	if _, err := l.AllowN(ctx, "k", 6); !strings.Contains(err.Error(), "5/1m") {
		t.Errorf("the error does not name the limit that is too small: %v", err)
	}
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
	_, err := l.Allow(t.Context(), "k")
	if !errors.Is(err, sash.ErrUnavailable) || !errors.Is(err, down) || errors.Is(err, sash.ErrLimited) {
		t.Errorf("a failing store gives %v", err)
	}
	dial := fmt.Errorf("dial: %w", context.DeadlineExceeded)
	_, err = newLimiter(t, failingStore{dial}, nil, sash.PerMinute(1)).Allow(t.Context(), "k")
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

func TestPlansShareWhatWasCharged(t *testing.T) {
	store := memstore.New(nil)
	free := newLimiter(t, store, nil, sash.PerMinute(2))
	pro, err := free.With(sash.PerMinute(5))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if res, _ := free.Allow(t.Context(), "user"); !res.Allowed {
			t.Fatal("refused below the limit")
		}
	}
	if res, _ := free.Allow(t.Context(), "user"); res.Allowed {
		t.Error("the free plan admitted a third call")
	}
	if res, _ := pro.Allow(t.Context(), "user"); !res.Allowed || res.Remaining != 2 {
		t.Errorf("after the upgrade: %+v", res)
	}
}

func TestACallerThatIsGoneIsNotCharged(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client hung up")
	cancel(gone)
	l := newLimiter(t, panicStore{}, nil, sash.PerMinute(1))
	_, err := l.Allow(ctx, "k")
	if !errors.Is(err, context.Canceled) || !errors.Is(err, gone) || errors.Is(err, sash.ErrUnavailable) {
		t.Errorf("Allow: %v", err)
	}
	if _, err := l.AllowAll(ctx, sash.Subject{Key: "k", Cost: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("AllowAll: %v", err)
	}
	if err := l.Do(ctx, "k", func(context.Context) error { panic("it ran") }); !errors.Is(err, context.Canceled) {
		t.Errorf("Do: %v", err)
	}
	if err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
}
