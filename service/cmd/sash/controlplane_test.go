//go:build envoy || kubernetes

package main

import (
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"example.com/sash/service/internal/servertest"
)

// A controlPlane is a management server of Envoy and Sash. It sends resources again when they change.
type controlPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	mu        sync.Mutex
	changed   chan struct{}           // guarded by mu: closed when resources change
	resources map[string][]*anypb.Any // guarded by mu: by type
	version   int                     // guarded by mu
	rejected  []string                // guarded by mu: the reasons
}

func (c *controlPlane) put(t *testing.T, resources ...proto.Message) {
	t.Helper()
	var all []*anypb.Any
	for _, r := range resources {
		packed := servertest.Must(anypb.New(r))(t)
		all = append(all, packed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resources[all[0].TypeUrl] = all
	c.version++
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *controlPlane) reasons() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.rejected)
}

// response returns the resources of a type if they are others than before.
func (c *controlPlane) response(kind string, before []*anypb.Any) *discovery.DiscoveryResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, current := strconv.Itoa(c.version), c.resources[kind]
	if len(current) == 0 || slices.Equal(current, before) {
		return nil
	}
	return &discovery.DiscoveryResponse{VersionInfo: version, Nonce: version, TypeUrl: kind, Resources: current}
}

func (c *controlPlane) StreamAggregatedResources(stream grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	requests := make(chan *discovery.DiscoveryRequest)
	go func() {
		defer close(requests)
		for req, err := stream.Recv(); err == nil; req, err = stream.Recv() {
			select {
			case requests <- req:
			case <-stream.Context().Done():
			}
		}
	}()
	sent := make(map[string][]*anypb.Any) // to this client, of each type that it has requested
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		for kind, before := range sent {
			if res := c.response(kind, before); res != nil {
				sent[kind] = res.Resources
				if err := stream.Send(res); err != nil {
					return err
				}
			}
		}
		select {
		case req, open := <-requests:
			if !open {
				return nil
			}
			if req.ErrorDetail != nil {
				c.mu.Lock()
				c.rejected = append(c.rejected, req.ErrorDetail.Message)
				c.mu.Unlock()
			}
			if _, known := sent[req.TypeUrl]; !known {
				sent[req.TypeUrl] = nil
			}
		case <-changed:
		}
	}
}

// startControlPlane returns a server without resources, and its port.
func startControlPlane(t *testing.T, options ...grpc.ServerOption) (*controlPlane, string) {
	t.Helper()
	listener := servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	c := &controlPlane{changed: make(chan struct{}), resources: make(map[string][]*anypb.Any)}
	server := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return c, portOf(listener.Addr().String())
}
