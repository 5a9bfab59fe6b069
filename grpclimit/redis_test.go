package grpclimit_test

import (
	"context"
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
