package envoy

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/throttle"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// A Source is a management server that sends configurations of type ratelimit.config.ratelimit.v3, with the
// state-of-the-world variant of an aggregated discovery stream.
type Source struct {
	// Server is the server's address, host:port.
	Server string
	// Node is the ID of this process for the server.
	Node string
	// Defaults are the options of rules that the server's configurations cannot express.
	Defaults config.Defaults
	// Merge lets several resources configure one domain.
	Merge bool
	// TLS encrypts the connection. CA is a file with the server's authorities; empty means the system's. Cert and Key are this
	// client's files; empty means none. All files are PEM. ServerName is the expected server name; empty means the one in Server.
	TLS           bool
	CA, Cert, Key string
	ServerName    string
	// Headers are sent with each stream.
	Headers map[string]string
	// Retry is the pause before a new stream, and before the first repeated rejection. Zero is three seconds.
	Retry time.Duration
	// MaxMessage is the maximum size of a server message in bytes. Zero is the default of gRPC, 4 MiB.
	MaxMessage int
	// Lost is called with the error that ended a stream, at most once until the server sends something new. It may be nil.
	Lost func(error)
}

// Watch calls use with each valid configuration from the server until ctx ends. If a configuration is invalid or use
// rejects it, Watch calls rejected and sends the error to the server. Calls do not overlap. Servers answer a rejection with
// the same configuration. Watch does not report such repetitions, and rejects them after pauses that grow to ten times
// Retry. It returns an error for an invalid address or option, and retries while the server is unreachable.
func (s Source) Watch(ctx context.Context, use func(*config.Config) error, rejected func(error)) error {
	creds := insecure.NewCredentials()
	if s.TLS {
		secured := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
		if err := access.Certify(secured, s.CA, s.Cert, s.Key); err != nil {
			return fmt.Errorf("reading the certificates for the management server: %w", err)
		}
		creds = credentials.NewTLS(secured)
	}
	conn, err := grpc.NewClient(s.Server, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(s.MaxMessage, 4<<20))),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: 20 * time.Second}))
	if err != nil {
		return fmt.Errorf("the management server %s: %w", s.Server, err)
	}
	if s.Retry <= 0 {
		s.Retry = 3 * time.Second
	}
	w := &subscription{Source: s, use: use, reject: rejected}
	go func() {
		defer func() { _ = conn.Close() }()
		throttle.Repeat(ctx, func() time.Duration {
			if err := w.stream(ctx, conn); ctx.Err() == nil && s.Lost != nil && !w.lost {
				w.lost = true
				s.Lost(err)
			}
			return s.Retry
		})
	}()
	return nil
}

// A subscription is the state of one Watch.
type subscription struct {
	Source
	use      func(*config.Config) error
	reject   func(error)
	accepted string // the version in use
	rejected string // the version and the error of the last configuration, or empty if it was accepted
	again    int    // how often it was rejected before
	lost     bool   // Lost was called
}

func (s *subscription) stream(ctx context.Context, conn *grpc.ClientConn) error {
	for name, value := range s.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value) //nolint:fatcontext // one a header, a few
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	arrived, ended := conns.Receive(ctx, stream.Recv)
	req := s.request()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-due.C:
			if err := stream.Send(req); err != nil {
				return err
			}
		case err := <-ended:
			return err
		case res := <-arrived: // even before a due rejection: this configuration is newer
			if res.GetTypeUrl() != TypeURL {
				return fmt.Errorf("the management server sent %s, which this process did not request", res.GetTypeUrl())
			}
			var pause time.Duration
			req, pause = s.answer(res)
			due.Reset(pause)
		}
	}
}

// answer uses or rejects a configuration. It returns the request that reports this, and the pause before sending it.
func (s *subscription) answer(res *discovery.DiscoveryResponse) (*discovery.DiscoveryRequest, time.Duration) {
	cfg, err := s.read(res.GetResources())
	if err == nil {
		err = s.use(cfg)
	}
	if err == nil {
		s.accepted, s.rejected, s.lost = res.GetVersionInfo(), "", false
	}
	req := s.request()
	req.ResponseNonce = res.GetNonce()
	if err == nil {
		return req, 0
	}
	req.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
	if id := res.GetVersionInfo() + " " + err.Error(); id != s.rejected {
		s.rejected, s.again, s.lost = id, 0, false
		s.reject(err)
		return req, 0
	}
	pause := s.Retry * time.Duration(min(1<<min(s.again, 4), 10))
	s.again++
	return req, pause
}

// request returns a request for configurations, which names the version in use.
func (s *subscription) request() *discovery.DiscoveryRequest {
	node := &corev3.Node{Id: s.Node, UserAgentName: "sash"}
	return &discovery.DiscoveryRequest{Node: node, TypeUrl: TypeURL, VersionInfo: s.accepted}
}

// read returns the configuration in resources. It converts them to the file format first, so that one parser checks both.
func (s Source) read(resources []*anypb.Any) (*config.Config, error) {
	if len(resources) == 0 {
		return config.Empty(), nil
	}
	files := make([]config.File, len(resources))
	for i, resource := range resources {
		var message ratelimit.RateLimitConfig
		if err := resource.UnmarshalTo(&message); err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
		name := "resource " + message.GetName()
		if of := unknown(message.ProtoReflect()); of != "" {
			return nil, fmt.Errorf("%s: %s has a field that this version does not know", name, of)
		}
		text, err := text(&message)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[i] = config.File{Name: name, Text: text}
	}
	return config.Parse(s.Defaults, s.Merge, files...)
}

// text returns a configuration as JSON, which is YAML. It writes what files must contain: the key, and the units even if they are 0.
func text(message *ratelimit.RateLimitConfig) ([]byte, error) {
	packed, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return nil, err
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(packed, &config); err != nil {
		return nil, err
	}
	delete(config, "name") // of the resource
	return json.Marshal(config)
}

// unknown returns the name of a message with an unknown field, which may change its meaning, or "".
func unknown(m protoreflect.Message) (name string) {
	if len(m.GetUnknown()) > 0 {
		return string(m.Descriptor().Name())
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil, field.IsMap(): // the schema has no maps
		case field.IsList():
			for i := range value.List().Len() {
				name = cmp.Or(name, unknown(value.List().Get(i).Message()))
			}
		default:
			name = unknown(value.Message())
		}
		return name == ""
	})
	return name
}
