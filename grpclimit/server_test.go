package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/grpclimit"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
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

func TestDescriptionsOfLimits(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for want, limit := range map[string]sash.Limit{
		"1 call per second":                          sash.PerSecond(1),
		"1 call per 90 seconds":                      sash.Every(1, 90*time.Second),
		"1 call per 7 days":                          sash.Every(1, 7*24*time.Hour),
		"1 call per 1500 microseconds":               sash.Every(1, 1500*time.Microsecond),
		"1 call per calendar day in UTC":             sash.PerCalendar(1, sash.CalendarDay, nil),
		"1 call per calendar month in Europe/Berlin": sash.PerCalendar(1, sash.CalendarMonth, berlin),
	} {
		client := dial(t, &service{}, limited(onServer(t, newLimiter(t, newClock().store(), limit), grpclimit.Shared("all"), nil)))
		wantCode(t, call(t.Context(), client), codes.OK)
		if v := violations(t, call(t.Context(), client)); len(v) != 1 || v[0].GetDescription() != want {
			t.Errorf("violations %v, want %q", v, want)
		}
	}
}

func TestStoreFailure(t *testing.T) {
	down := failing(status.Error(codes.ResourceExhausted, "a proxy before the store is busy"))
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
				wantRetryFrom(t, err, c.retry)
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

// with adds metadata to the calls of a context.
func with(t testing.TB, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), pairs...)
}

// A refusal by one layer charges none, and names what refused. A layer has a cost and calls of its own.
func TestLayersAreOneDecision(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, clock.store(), sash.PerMinute(100))
	client := dial(t, &service{}, limited(onLayers(t, limiter, nil,
		grpclimit.Layer{Name: "all", Key: grpclimit.Shared("x"), Limits: []sash.Limit{sash.PerHour(3)}},
		grpclimit.Layer{Name: "customer", Key: grpclimit.Metadata("customer"), Limits: []sash.Limit{sash.PerMinute(2)}},
		grpclimit.Layer{
			Name: "bytes", Key: grpclimit.Shared("x"),
			Cost:  func(grpclimit.Call) int64 { return 10 },
			Match: func(c grpclimit.Call) bool { return metadata.ValueFromIncomingContext(c.Context, "large") != nil },
		},
	)))
	ann, bob := with(t, "customer", "ann", "large", "yes"), with(t, "customer", "bob")

	wantCode(t, call(ann, client), codes.OK)
	wantCode(t, call(ann, client), codes.OK)
	err := call(ann, client)
	wantCode(t, err, codes.ResourceExhausted)
	wantRetryAfter(t, err, time.Minute)
	if v := violations(t, err); len(v) != 1 || v[0].GetQuotaId() != "customer:2/1m" || v[0].GetDescription() != "2 calls per minute" {
		t.Errorf("violations %v", v)
	}
	wantLeft(t, limiter, "all:shared:x", 98) // of the limiter's hundred
	wantLeft(t, limiter, "bytes:shared:x", 80)

	wantCode(t, call(bob, client), codes.OK)
	err = call(ann, client) // refused by two, and the longer one counts
	wantRetryAfter(t, err, time.Hour)
	if v := violations(t, err); len(v) != 2 || v[0].GetQuotaId() != "all:3/1h" || v[1].GetQuotaId() != "customer:2/1m" {
		t.Errorf("violations %v", v)
	}
	if got, want := status.Convert(err).Message(), "limited to 3 calls per hour; retry after 1h0m0s"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	wantLeft(t, limiter, "bytes:shared:x", 80)
}

func TestWrongLayersAreErrors(t *testing.T) {
	_, err := grpclimit.NewServerLayers(newLimiter(t, newClock().store(), sash.PerMinute(1)), nil, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "grpclimit: ") || !strings.Contains(err.Error(), "at least one layer") {
		t.Errorf("error %v", err)
	}
}

// Many callers of both servers, of whom every third fails: together the servers let exactly so many failures through, never
// have more calls in flight, and free what the other calls held.
func TestTwoServersOnOneRedisShareFailuresAndCallsInFlight(t *testing.T) {
	const allowed, atOnce, callers, calls = 9, 3, 6, 15
	var inside, most, failed, succeeded atomic.Int64
	impl := &service{unary: func(ctx context.Context) error {
		now := inside.Add(1)
		defer inside.Add(-1)
		before := most.Load()
		for now > before && !most.CompareAndSwap(before, now) {
			before = most.Load()
		}
		if metadata.ValueFromIncomingContext(ctx, "wrong") != nil {
			return status.Error(codes.Unauthenticated, "wrong password")
		}
		return nil
	}}
	try := func(client pb.TestServiceClient, n int) {
		ctx := t.Context()
		if n%3 == 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, "wrong", "yes")
		}
		switch err := call(ctx, client); status.Code(err) {
		case codes.OK:
			succeeded.Add(1)
		case codes.Unauthenticated:
			failed.Add(1)
		case codes.ResourceExhausted:
		default:
			t.Error(err)
		}
	}
	redis, clients := redistest.Start(t), [2]pb.TestServiceClient{}
	for i := range clients { // of servers that have nothing in common but Redis
		store := redisstore.New(redistest.Scripter(redistest.Dial(redis.Addr())), nil)
		limit := onLayers(t, newLimiter(t, store, sash.PerHour(allowed)), &grpclimit.ServerOptions{Timeout: 20 * time.Second}, failures(), inFlight(atOnce))
		clients[i] = dial(t, impl, limited(limit))
	}
	var group sync.WaitGroup
	for _, client := range clients {
		for c := range callers {
			group.Go(func() {
				for i := range calls {
					try(client, c+i)
				}
			})
		}
	}
	group.Wait()
	if failed.Load() > allowed || succeeded.Load() == 0 || most.Load() > atOnce {
		t.Errorf("%d failed of %d allowed, %d succeeded, %d at once of %d allowed", failed.Load(), allowed, succeeded.Load(), most.Load(), atOnce)
	}
	for i := range 3 * (allowed + 1) { // what running attempts held is free again, and no more than that
		try(clients[i%2], i)
	}
	if failed.Load() != allowed {
		t.Errorf("%d failed in all, want %d", failed.Load(), allowed)
	}
}
