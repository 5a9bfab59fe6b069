package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/grpclimit"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func TestRefusalSaysWhenAndWhy(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, clock.store(), sash.PerMinute(2))
	impl := &service{}
	client := dial(t, impl, limited(onServer(t, limiter, grpclimit.Shared("all"), nil)))

	for range 2 {
		wantCode(t, call(t.Context(), client), codes.OK)
	}
	clock.Advance(12*time.Second + 345678*time.Microsecond)
	err := call(t.Context(), client)
	wantCode(t, err, codes.ResourceExhausted)
	wantRetryAfter(t, err, 47*time.Second+654322*time.Microsecond)
	if got, want := status.Convert(err).Message(), "limited to 2 calls per minute; retry after 47.654322s"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	v := violations(t, err)
	if len(v) != 1 || v[0].GetSubject() != "" || v[0].GetDescription() != "2 calls per minute" ||
		v[0].GetQuotaId() != "2/1m" || v[0].GetQuotaValue() != 2 {
		t.Errorf("violations %v", v)
	}
	if errors.Is(err, sash.ErrLimited) {
		t.Error("a server's refusal passes for a local one")
	}
	if impl.served() != 2 {
		t.Errorf("the handler ran %d times, want 2", impl.served())
	}
	if strings.Contains(status.Convert(err).Proto().String(), "shared:all") {
		t.Error("the status has the key, which may name a user")
	}

	clock.Advance(47*time.Second + 654321*time.Microsecond)
	wantCode(t, call(t.Context(), client), codes.ResourceExhausted)
	clock.Advance(time.Microsecond)
	wantCode(t, call(t.Context(), client), codes.OK)
}

func TestStoreFailure(t *testing.T) {
	down := storetest.NewFaulty(memstore.New(nil))
	down.Fail(status.Error(codes.ResourceExhausted, "a proxy before the store is busy"))
	for _, c := range []struct {
		name  string
		store driver.Store
		opts  grpclimit.ServerOptions
		want  codes.Code
		retry time.Duration
	}{
		{"closed is the default", down, grpclimit.ServerOptions{}, codes.Unavailable, 5 * time.Second},
		{"open", down, grpclimit.ServerOptions{FailOpen: true}, codes.OK, 0},
		{"a store that hangs", hanging(nil), grpclimit.ServerOptions{Timeout: time.Millisecond}, codes.Unavailable, 5 * time.Second},
		{"a store that hangs, open", hanging(nil), grpclimit.ServerOptions{Timeout: time.Millisecond, FailOpen: true}, codes.OK, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			reported := make(chan error, 1)
			c.opts.OnError = func(_ grpclimit.Call, err error) { reported <- err }
			client := dial(t, &service{}, limited(onServer(t, newLimiter(t, c.store, sash.PerMinute(1)), grpclimit.Shared("all"), &c.opts)))
			err := call(t.Context(), client)
			wantCode(t, err, c.want)
			if c.want != codes.OK {
				if got, ok := grpclimit.RetryAfter(err); !ok || got < c.retry || got > 2*c.retry {
					t.Errorf("retry after %v, %v; want %v to %v: %v", got, ok, c.retry, 2*c.retry, err)
				}
				if strings.Contains(err.Error(), "proxy") {
					t.Errorf("the status names the store: %v", err)
				}
			}
			if err := <-reported; !errors.Is(err, sash.ErrUnavailable) {
				t.Errorf("OnError got %v", err)
			}
		})
	}
}

// Only the server sees its answer to a caller that has gone.
func TestCallerThatGivesUp(t *testing.T) {
	decides, ended := make(chan struct{}, 1), make(chan error, 1)
	limit := onServer(t, newLimiter(t, hanging(decides), sash.PerMinute(1)), grpclimit.Shared("all"),
		&grpclimit.ServerOptions{Timeout: -1, FailOpen: true})
	record := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		res, err := limit.Unary(ctx, req, info, handler)
		ended <- err
		return res, err
	}
	impl := &service{}
	client := dial(t, impl, []grpc.ServerOption{grpc.UnaryInterceptor(record)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-decides
		cancel()
	}()
	wantCode(t, call(ctx, client), codes.Canceled)
	wantCode(t, <-ended, codes.Canceled)
	if impl.served() != 0 {
		t.Error("the handler ran for a caller that has gone")
	}
}

func TestRetryAfterRejectsInvalidDelays(t *testing.T) {
	withDelay := func(d *durationpb.Duration) error {
		s := must(status.New(codes.ResourceExhausted, "x").WithDetails(&errdetails.RetryInfo{RetryDelay: d}))(t)
		return s.Err()
	}
	for name, err := range map[string]error{
		"nil":                     nil,
		"no status":               errors.New("x"),
		"a status without one":    status.Error(codes.ResourceExhausted, "x"),
		"a RetryInfo without one": withDelay(nil),
		"a negative delay":        withDelay(durationpb.New(-time.Second)),
		"an invalid delay":        withDelay(&durationpb.Duration{Seconds: 1, Nanos: -1}),
	} {
		if d, ok := grpclimit.RetryAfter(err); ok {
			t.Errorf("%s: %v", name, d)
		}
	}
	wrapped := fmt.Errorf("loading the page: %w", withDelay(durationpb.New(1500*time.Microsecond)))
	wantRetryAfter(t, wrapped, 1500*time.Microsecond)
}

func wantLeft(t testing.TB, l *sash.Limiter, key string, want int64) {
	t.Helper()
	if res, err := l.Peek(t.Context(), key); err != nil || res.Remaining != want {
		t.Errorf("%d left for %s, want %d: %v", res.Remaining, key, want, err)
	}
}

func TestWrongLayersAreErrors(t *testing.T) {
	_, err := grpclimit.NewServerLayers(newLimiter(t, newClock().store(), sash.PerMinute(1)), nil, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "grpclimit: ") || !strings.Contains(err.Error(), "at least one layer") {
		t.Errorf("error %v", err)
	}
}
