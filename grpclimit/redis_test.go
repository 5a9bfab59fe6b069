package grpclimit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/grpclimit"
	"example.com/sash/redisstore"
	"example.com/sash/redistest"
	"example.com/sash/redistest/adaptertest"
)

// fleet starts gRPC servers that have nothing in common but a Redis server, and returns a client of each.
func fleet(t *testing.T, redis *redistest.Server, impl *service, limit sash.Limit, servers int) []pb.TestServiceClient {
	t.Helper()
	clients := make([]pb.TestServiceClient, servers)
	for i := range clients {
		store := redisstore.New(adaptertest.Scripter(redistest.Dial(redis.Addr())), nil)
		interceptor := onServer(t, newLimiter(t, store, limit), grpclimit.PeerAddress, &grpclimit.ServerOptions{Timeout: 20 * time.Second})
		clients[i] = dialTCP(t, impl, limited(interceptor))
	}
	return clients
}

// Many callers at one address use both servers at once: together they admit exactly what one would.
func TestTwoServersOnOneRedisShareALimit(t *testing.T) {
	const allowed, callers, calls = 25, 8, 10
	impl := &service{}
	var admitted, refused atomic.Int64
	var group sync.WaitGroup
	for _, client := range fleet(t, redistest.Start(t), impl, sash.PerHour(allowed), 2) {
		for range callers {
			group.Go(func() {
				for range calls {
					switch err := call(t.Context(), client); status.Code(err) {
					case codes.OK:
						admitted.Add(1)
					case codes.ResourceExhausted:
						refused.Add(1)
						if d, ok := grpclimit.RetryAfter(err); !ok || d <= 0 || d > time.Hour {
							t.Errorf("retry after %v, %v", d, ok)
						}
					default:
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
	if admitted.Load() != allowed || refused.Load() != 2*callers*calls-allowed || impl.served() != allowed {
		t.Errorf("%d admitted, %d refused and %d served of %d; want %d, the rest and %d",
			admitted.Load(), refused.Load(), impl.served(), 2*callers*calls, allowed, allowed)
	}
}

// Units that one server charged are missing on the other until they leave the window, and a Redis that is down
// is no refusal.
func TestTwoServersOnOneRedisTakeTurns(t *testing.T) {
	redis := redistest.Start(t)
	clients := fleet(t, redis, &service{}, sash.PerHour(2), 2)
	for _, client := range clients {
		wantCode(t, call(t.Context(), client), codes.OK)
	}
	for _, client := range clients {
		wantCode(t, call(t.Context(), client), codes.ResourceExhausted)
	}
	redis.Stop()
	for _, client := range clients {
		err := call(t.Context(), client)
		wantCode(t, err, codes.Unavailable)
		wantRetryFrom(t, err, grpclimit.DefaultUnavailableRetry)
	}
}
