//go:build envoy

package main

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ext "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"example.com/sash/service/internal/servertest"
)

// An aiGateway does what the service of Envoy AI Gateway 1.1 does. Its filter of the listener keeps the body, names the model in
// x-ai-eg-model, and translates the response. Its filter of the cluster replaces the body by the kept one in the form of the provider.
type aiGateway struct {
	ext.UnimplementedExternalProcessorServer
	bodies sync.Map // by request
}

// Process implements the protocol.
func (g *aiGateway) Process(stream ext.ExternalProcessor_ProcessServer) error {
	ofCluster, id := metadata.ValueFromIncomingContext(stream.Context(), "of")[0] == "cluster", ""
	header := func(name string, value []byte) *ext.HeaderMutation {
		return &ext.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: name, RawValue: value}}}}
	}
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		res, common := &ext.ProcessingResponse{}, &ext.CommonResponse{}
		switch r := req.GetRequest().(type) {
		case *ext.ProcessingRequest_RequestHeaders:
			for _, h := range r.RequestHeaders.GetHeaders().GetHeaders() {
				if h.GetKey() == "x-request-id" {
					id = string(h.GetRawValue())
				}
			}
			if ofCluster {
				kept, _ := g.bodies.Load(id)
				body := fmt.Appendf(nil, `{"theirs":%s}`, kept)
				common.Status, common.HeaderMutation = ext.CommonResponse_CONTINUE_AND_REPLACE, header("x-usage-as", []byte("theirs"))
				common.BodyMutation = &ext.BodyMutation{Mutation: &ext.BodyMutation_Body{Body: body}}
			}
			res.Response = &ext.ProcessingResponse_RequestHeaders{RequestHeaders: &ext.HeadersResponse{Response: common}}
		case *ext.ProcessingRequest_RequestBody:
			g.bodies.Store(id, r.RequestBody.GetBody())
			common.HeaderMutation, common.ClearRouteCache = header("x-ai-eg-model", []byte("m")), true
			res.Response = &ext.ProcessingResponse_RequestBody{RequestBody: &ext.BodyResponse{Response: common}}
		case *ext.ProcessingRequest_ResponseHeaders:
			res.Response = &ext.ProcessingResponse_ResponseHeaders{ResponseHeaders: &ext.HeadersResponse{Response: common}}
		case *ext.ProcessingRequest_ResponseBody:
			body := bytes.ReplaceAll(r.ResponseBody.GetBody(), []byte(`"theirs"`), []byte(`"usage"`))
			common.BodyMutation = &ext.BodyMutation{Mutation: &ext.BodyMutation_Body{Body: body}}
			res.Response = &ext.ProcessingResponse_ResponseBody{ResponseBody: &ext.BodyResponse{Response: common}}
		}
		if err := stream.Send(res); err != nil {
			return nil
		}
	}
}

// gatewayConfig has the filter of the listener; the filter of the cluster; and the cluster of the service, which itself asks for STREAMED.
const gatewayConfig = `
- name: envoy.filters.http.ext_proc/aigateway
  typed_config: &of
    "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
    grpc_service: {envoy_grpc: {cluster_name: gateway}, initial_metadata: [{key: of, value: listener}]}
    processing_mode: {request_header_mode: SEND, request_body_mode: BUFFERED, response_header_mode: SEND, response_body_mode: STREAMED}
    message_timeout: 20s
- envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: {http_protocol_options: {}}
    http_filters:
      - name: envoy.filters.http.ext_proc/aigateway
        typed_config:
          <<: *of
          grpc_service: {envoy_grpc: {cluster_name: gateway}, initial_metadata: [{key: of, value: cluster}]}
          processing_mode: {request_header_mode: SEND, request_body_mode: NONE, response_header_mode: SKIP, response_body_mode: NONE}
      - {name: codec, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec}}
- name: gateway
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config: {http2_protocol_options: {}}
  load_assignment:
    cluster_name: gateway
    endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: PORT}}}}]}]
`

// Before the filter of Envoy AI Gateway what Sash writes into a request reaches the provider, and the response is in the client's form.
// Behind it neither is so.
func TestRealEnvoyBesideAnAIGateway(t *testing.T) {
	for place, want := range map[int]struct { // behind so many filters, which end with the last buffer filter
		asks bool // for usage
		left int
	}{4: {true, 970}, 1: {false, 800}} {
		listener := servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
		server := grpc.NewServer()
		ext.RegisterExternalProcessorServer(server, &aiGateway{})
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		p, v := serve(t, "--config", tokenRules(t), "--budget", patience), startVendor(t)
		of := parsed[[]any](t, strings.ReplaceAll(gatewayConfig, "PORT", portOf(listener.Addr().String())))
		e := startEnvoy(t, refit(t, tokenConfig(t, v, p), func(all []any, root map[string]any) []any {
			resources := root["static_resources"].(map[string]any)
			clusters := list(resources, "clusters")
			clusters[0].(map[string]any)["typed_extension_protocol_options"] = of[1]
			resources["clusters"] = append(clusters, of[2])
			return slices.Insert(all, place, of[0])
		}))
		body, err := finish(e.completes("ann", 30))
		if err != nil || !strings.Contains(body, `{"usage":{`) || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("%q, %v", body, err)
		}
		if len(v.bodies) != 1 || !strings.HasPrefix(v.bodies[0], `{"theirs":{`) || strings.Contains(v.bodies[0], `"include_usage":true`) != want.asks {
			t.Errorf("the provider got %s", v.bodies)
		}
		p.tokensLeft(t, "ann", want.left)
	}
}
