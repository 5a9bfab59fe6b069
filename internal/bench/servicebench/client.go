package servicebench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/sash/internal/bench/load"
)

// connections is the number of the gRPC client's connections. A proxy has a few, one per thread.
const connections = 4

// A protocol is a way to call the service.
type protocol struct {
	name string
	dial func(s *Service, entry string) (decide load.Decide, done func(), err error)
}

var protocols = []protocol{
	{"gRPC", dialGRPC},
	{"HTTP", dialHTTP},
	{"RESP", dialRESP},
}

func dialGRPC(s *Service, entry string) (load.Decide, func(), error) { return DialGRPC(s.GRPC, entry) }

// DialGRPC asks a service by the rule of an entry in the domain bench, as a proxy does. The caller ends it.
func DialGRPC(address, entry string) (decide load.Decide, end func(), err error) {
	var conns []*grpc.ClientConn
	done := func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	var clients [connections]pb.RateLimitServiceClient
	for i := range clients {
		c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			done()
			return nil, nil, err
		}
		conns = append(conns, c)
		clients[i] = pb.NewRateLimitServiceClient(c)
	}
	var turn atomic.Uint64
	return func(ctx context.Context, key string) (bool, error) {
		res, err := clients[turn.Add(1)%connections].ShouldRateLimit(ctx, &pb.RateLimitRequest{
			Domain: "bench",
			Descriptors: []*common.RateLimitDescriptor{{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: entry, Value: key}},
			}},
		})
		return res.GetOverallCode() == pb.RateLimitResponse_OK, err
	}, done, nil
}

func dialHTTP(s *Service, entry string) (load.Decide, func(), error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	url := s.URL + "/v1/allow"
	return func(ctx context.Context, key string) (bool, error) {
		body := strings.NewReader(`{"domain":"bench","entries":[{"key":"` + entry + `","value":"` + key + `"}]}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
		if err != nil {
			return false, err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			return false, err
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return false, err
		}
		switch res.StatusCode {
		case http.StatusOK:
			return true, nil
		case http.StatusTooManyRequests:
			return false, nil
		}
		return false, fmt.Errorf("servicebench: %s", res.Status)
	}, transport.CloseIdleConnections, nil
}

// dialRESP calls with go-redis, which takes a connection for each call in flight.
func dialRESP(s *Service, entry string) (load.Decide, func(), error) {
	client := redis.NewClient(&redis.Options{Addr: s.RESP, PoolSize: 1024, MaxRetries: -1})
	return func(ctx context.Context, key string) (bool, error) {
		reply, err := client.Do(ctx, "SASH.ALLOW", "bench", "ENTRY", entry, key).Result()
		if err != nil {
			return false, err
		}
		fields, ok := reply.(map[any]any)
		if !ok {
			return false, fmt.Errorf("servicebench: a reply of type %T", reply)
		}
		return fields["allowed"] == int64(1), nil
	}, func() { _ = client.Close() }, nil
}
