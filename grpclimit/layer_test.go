package grpclimit_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/grpclimit"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

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
