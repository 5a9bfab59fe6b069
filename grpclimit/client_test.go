package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/grpclimit"
	"example.com/sash/memstore"
)

func limiting(c *grpclimit.ClientInterceptor) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream)}
}

func TestClientRefusesBeforeSending(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), sash.Every(2, 5*time.Second), sash.PerMinute(10))
	impl := &service{}
	client := dial(t, impl, nil, limiting(grpclimit.NewClientInterceptor(limiter, grpclimit.Join(grpclimit.Target, grpclimit.Method),
		&grpclimit.ClientOptions{Refuse: true}))...)
	for range 2 {
		wantCode(t, call(t.Context(), client), codes.OK)
	}
	err := call(t.Context(), client)
	wantCode(t, err, codes.ResourceExhausted)
	wantRetryAfter(t, err, 5*time.Second)
	var refused *sash.LimitedError
	if !errors.As(err, &refused) || !errors.Is(err, sash.ErrLimited) {
		t.Fatalf("%v is not a LimitedError", err)
	}
	want := "target:passthrough%3A///memory:method:" + sash.Key(pb.TestService_UnaryCall_FullMethodName)
	if refused.Key != want || refused.Limit.Units != 2 || refused.Result.RetryAfter != 5*time.Second || refused.Cause != nil {
		t.Errorf("key %q, limit %v, result %+v, cause %v", refused.Key, refused.Limit, refused.Result, refused.Cause)
	}
	var notSent *grpclimit.NotSentError
	if !errors.As(err, &notSent) {
		t.Errorf("%v is not a NotSentError", err)
	}
	if impl.served() != 2 {
		t.Errorf("the server saw %d calls, want 2", impl.served())
	}
	if _, err := echo(t, client, 1); err != nil {
		t.Errorf("another method has its own count: %v", err)
	}
}

// Both have the code ResourceExhausted and a retry time; only one call was sent.
func TestRefusalsOfServerAndClientAreDistinct(t *testing.T) {
	strict := onServer(t, newLimiter(t, newClock().store(), sash.PerMinute(1)), grpclimit.Shared("all"), nil)
	ours := grpclimit.NewClientInterceptor(newLimiter(t, newClock().store(), sash.PerHour(2)), grpclimit.Target, &grpclimit.ClientOptions{Refuse: true})
	client := dial(t, &service{}, limited(strict), limiting(ours)...)
	wantCode(t, call(t.Context(), client), codes.OK)

	fromServer, local := call(t.Context(), client), call(t.Context(), client)
	wantCode(t, fromServer, codes.ResourceExhausted)
	wantCode(t, local, codes.ResourceExhausted)
	wantRetryAfter(t, fromServer, time.Minute)
	wantRetryAfter(t, local, time.Hour)
	if errors.Is(fromServer, sash.ErrLimited) || !errors.Is(local, sash.ErrLimited) {
		t.Errorf("from the server: %v\nours: %v", fromServer, local)
	}
}

// inBubble runs f in a bubble whose time passes only while all goroutines wait. Send makes a call through a
// client's interceptor and reports whether it was sent.
func inBubble(t *testing.T, limit sash.Limit, f func(t *testing.T, send func(context.Context) (sent bool, err error))) {
	synctest.Test(t, func(t *testing.T) {
		c := grpclimit.NewClientInterceptor(newLimiter(t, memstore.New(nil), limit), grpclimit.Target, nil)
		conn, err := grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		f(t, func(ctx context.Context) (sent bool, err error) {
			err = c.Unary(ctx, "/s/m", nil, nil, conn, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				sent = true
				return nil
			})
			return sent, err
		})
	})
}

func TestClientWaitsUntilThereIsRoom(t *testing.T) {
	inBubble(t, sash.PerMinute(2), func(t *testing.T, send func(context.Context) (bool, error)) {
		began := time.Now()
		for range 5 {
			if sent, err := send(t.Context()); !sent || err != nil {
				t.Fatalf("sent %v, %v", sent, err)
			}
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("five calls at two a minute took %v, want 2m", took)
		}
	})
}

func TestClientFailsAtOnceWhenTheDeadlineIsEarlier(t *testing.T) {
	inBubble(t, sash.PerMinute(1), func(t *testing.T, send func(context.Context) (bool, error)) {
		if _, err := send(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		sent, err := send(ctx)
		var refused *sash.LimitedError
		if sent || !errors.As(err, &refused) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 0 {
			t.Errorf("sent %v after %v: %v", sent, time.Since(began), err)
		}
		wantCode(t, err, codes.DeadlineExceeded)
		wantRetryAfter(t, err, time.Minute)
	})
}

func TestClientStopsWaitingWhenItsCallerLeaves(t *testing.T) {
	inBubble(t, sash.PerMinute(1), func(t *testing.T, send func(context.Context) (bool, error)) {
		if _, err := send(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(10*time.Second, cancel).Stop()
		sent, err := send(ctx)
		if sent || !errors.Is(err, context.Canceled) || errors.Is(err, sash.ErrLimited) || time.Since(began) != 10*time.Second {
			t.Errorf("sent %v after %v: %v", sent, time.Since(began), err)
		}
		wantCode(t, err, codes.Canceled)
	})
}

func TestClientWhileTheStoreFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		store driver.Store
		opts  grpclimit.ClientOptions
		sent  int
	}{
		{"closed is the default", failing(errors.New("down")), grpclimit.ClientOptions{}, 0},
		{"open", failing(errors.New("down")), grpclimit.ClientOptions{FailOpen: true}, 1},
		{"a store that hangs", hanging(nil), grpclimit.ClientOptions{Timeout: time.Millisecond}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			reported := make(chan error, 1)
			c.opts.OnError = func(_ grpclimit.Call, err error) { reported <- err }
			impl := &service{}
			client := dial(t, impl, nil, limiting(grpclimit.NewClientInterceptor(newLimiter(t, c.store, sash.PerMinute(1)), grpclimit.Target, &c.opts))...)
			err := call(t.Context(), client)
			if impl.served() != c.sent {
				t.Errorf("the server saw %d calls, want %d", impl.served(), c.sent)
			}
			if !errors.Is(<-reported, sash.ErrUnavailable) {
				t.Error("OnError did not receive the failure of the store")
			}
			if c.sent == 1 {
				wantCode(t, err, codes.OK)
				return
			}
			wantCode(t, err, codes.Unavailable)
			wantRetryFrom(t, err, 5*time.Second)
			if !errors.Is(err, sash.ErrUnavailable) || errors.Is(err, sash.ErrLimited) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRetryAfterRejectsInvalidDelays(t *testing.T) {
	withDelay := func(d *durationpb.Duration) error {
		s, err := status.New(codes.ResourceExhausted, "x").WithDetails(&errdetails.RetryInfo{RetryDelay: d})
		if err != nil {
			t.Fatal(err)
		}
		return s.Err()
	}
	for name, err := range map[string]error{
		"nil":                     nil,
		"no status":               errors.New("x"),
		"a status without one":    status.Error(codes.ResourceExhausted, "x"),
		"a RetryInfo without one": withDelay(nil),
		"a negative delay":        withDelay(durationpb.New(-time.Second)),
		"an invalid delay":        withDelay(&durationpb.Duration{Seconds: 1, Nanos: -1}),
		"a NotSentError of yours": &grpclimit.NotSentError{Err: errors.New("x")},
	} {
		if d, ok := grpclimit.RetryAfter(err); ok {
			t.Errorf("%s: %v", name, d)
		}
	}
	wrapped := fmt.Errorf("loading the page: %w", withDelay(durationpb.New(1500*time.Microsecond)))
	wantRetryAfter(t, wrapped, 1500*time.Microsecond)
}
