package envoy

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

// A management is a server that sends what a test gives it, and keeps the requests.
type management struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	send     chan *discovery.DiscoveryResponse // nil ends the stream
	requests chan *discovery.DiscoveryRequest
	token    chan string
}

func (m *management) StreamAggregatedResources(stream grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	m.token <- strings.Join(md.Get("x-token"), ",")
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				return
			}
			m.requests <- req
		}
	}()
	for {
		select {
		case res := <-m.send:
			if res == nil {
				return nil
			}
			if err := stream.Send(res); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func manage(t *testing.T) (*management, string) {
	t.Helper()
	m := &management{send: make(chan *discovery.DiscoveryResponse), requests: make(chan *discovery.DiscoveryRequest, 8), token: make(chan string, 8)}
	listener := servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, m)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return m, listener.Addr().String()
}

func response(t *testing.T, version string, messages ...proto.Message) *discovery.DiscoveryResponse {
	t.Helper()
	res := &discovery.DiscoveryResponse{VersionInfo: version, TypeUrl: TypeURL, Nonce: "nonce" + version}
	for _, message := range messages {
		res.Resources = append(res.Resources, servertest.Must(anypb.New(message))(t))
	}
	return res
}

func limited(domain string, units uint32) *rls.RateLimitConfig {
	return &rls.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*rls.RateLimitDescriptor{{
		Key: "a", Value: "404", ShadowMode: true,
		Descriptors: []*rls.RateLimitDescriptor{
			{Key: "b", RateLimit: &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_MINUTE, RequestsPerUnit: units, Name: "n", Replaces: []*rls.RateLimitReplace{{Name: "m"}}}},
			{Key: "free", RateLimit: &rls.RateLimitPolicy{Unlimited: true}},
		},
	}}}
}

type news struct {
	cfg *config.Config
	err error
}

// watch follows a new server, and returns it with the news and the errors that ended a stream.
func watch(t *testing.T, source Source) (*management, chan news, chan error) {
	t.Helper()
	m, addr := manage(t)
	heard, lost := make(chan news, 8), make(chan error, 8)
	source.Server, source.Lost = addr, func(err error) { lost <- err }
	use := func(cfg *config.Config) error { heard <- news{cfg: cfg}; return nil }
	servertest.Check(t, source.Watch(t.Context(), use, func(err error) { heard <- news{err: err} }))
	return m, heard, lost
}

func TestConfigurationsAreAcceptedOrRefused(t *testing.T) {
	m, heard, _ := watch(t, Source{Node: "edge-1", Headers: map[string]string{"x-token": "t"}, Retry: time.Millisecond})
	expect := func(what, version, nonce, refusal string) {
		t.Helper()
		req := <-m.requests
		if req.TypeUrl != TypeURL || req.Node.GetId() != "edge-1" || req.VersionInfo != version || req.ResponseNonce != nonce ||
			!strings.Contains(req.ErrorDetail.GetMessage(), refusal) || refusal == "" && req.ErrorDetail != nil {
			t.Errorf("%s: the request is %v", what, req)
		}
	}
	if token := <-m.token; token != "t" {
		t.Errorf("header %q", token)
	}
	expect("at first", "", "", "")

	m.send <- response(t, "1", limited("d", 5), limited("e", 6))
	n := <-heard
	if n.err != nil {
		t.Fatal(n.err)
	}
	found, err := n.cfg.Find("d", []config.Entry{{Key: "a", Value: "404"}, {Key: "b", Value: "x"}})
	rule := found.Rule
	if err != nil || rule == nil || rule.Limits[0].Units != 5 || rule.Limits[0].Window != time.Minute || rule.Name != "n" || rule.Replaces[0] != "m" {
		t.Errorf("rule %+v, %v", rule, err)
	}
	expect("accepted", "1", "nonce1", "")

	m.send <- response(t, "2", limited("d", 5), limited("d", 6))
	if n := <-heard; n.err == nil {
		t.Error("a domain twice is taken")
	}
	expect("refused", "1", "nonce2", "duplicate domain d")

	tomorrow := limited("d", 5)
	tomorrow.Descriptors[0].ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01}) // field 127
	m.send <- response(t, "3", tomorrow)
	if n := <-heard; n.err == nil {
		t.Error("a field that is not known is left out")
	}
	expect("refused", "1", "nonce3", "does not know")

	m.send <- nil // the stream ends, and is opened again
	<-m.token
	expect("again", "1", "", "")
	m.send <- response(t, "4")
	if n := <-heard; n.err != nil || len(n.cfg.Domains()) != 0 {
		t.Errorf("no resources: %+v", n)
	}
	expect("accepted", "4", "nonce4", "")
}

// Go-control-plane, on which most management servers are built, answers a rejection at once with what was rejected.
func TestAConfigurationThatIsRejectedAgainIsRejectedLater(t *testing.T) {
	m, heard, _ := watch(t, Source{Retry: time.Hour})
	<-m.token
	<-m.requests
	m.send <- response(t, "1", limited("d", 5), limited("d", 6))
	if n := <-heard; n.err == nil {
		t.Fatal("a domain twice is taken")
	}
	if req := <-m.requests; req.ErrorDetail == nil {
		t.Errorf("the first rejection is %v", req)
	}
	m.send <- response(t, "1", limited("d", 5), limited("d", 6)) // the next rejection is due in an hour
	m.send <- response(t, "2", limited("d", 5))                  // and does not delay this
	if n := <-heard; n.err != nil || len(n.cfg.Domains()) != 1 {
		t.Errorf("after the same error again: %+v", n)
	}
	if req := <-m.requests; req.ErrorDetail != nil || req.VersionInfo != "2" {
		t.Errorf("the request after the valid configuration is %v", req)
	}
	m.send <- response(t, "3", limited("d", 5), limited("d", 6)) // another version
	if n := <-heard; n.err == nil {
		t.Error("an error is not reported after a valid configuration")
	}
	if req := <-m.requests; req.ErrorDetail == nil || req.VersionInfo != "2" {
		t.Errorf("the rejection of another version is %v", req)
	}
}

// The server learns that its user does not take a configuration, and not that it is in use.
func TestAConfigurationThatItsUserDoesNotTakeIsRejected(t *testing.T) {
	var wrong []string
	s := &subscription{Source: Source{Retry: time.Second}, reject: func(err error) { wrong = append(wrong, err.Error()) }}
	s.use = func(cfg *config.Config) error {
		if len(cfg.Rules()) == 0 {
			return errors.New("rules are missing")
		}
		return nil
	}
	if req, _ := s.answer(response(t, "1", limited("d", 5))); req.ErrorDetail != nil || req.VersionInfo != "1" {
		t.Errorf("the answer to a valid configuration is %v", req)
	}
	for range 2 {
		if req, _ := s.answer(response(t, "2")); req.ErrorDetail.GetMessage() != "rules are missing" || req.VersionInfo != "1" {
			t.Errorf("the answer to a configuration without rules is %v", req)
		}
	}
	if len(wrong) != 1 {
		t.Errorf("the same error is reported %d times: %q", len(wrong), wrong)
	}
}

func TestAServerThatIsAwayIsReportedOnce(t *testing.T) {
	m, heard, lost := watch(t, Source{Retry: time.Millisecond})
	for range 2 {
		for range 3 {
			<-m.token
			<-m.requests
			m.send <- nil
		}
		<-m.token
		<-m.requests
		m.send <- response(t, "1", limited("d", 5))
		<-heard
		<-m.requests
		if n := len(lost); n != 1 {
			t.Fatalf("reported %d times, want once", n)
		}
		<-lost
		m.send <- nil
	}
}

func TestCertificatesThatAreNotThereAreAnError(t *testing.T) {
	for _, s := range []Source{{CA: "/none"}, {CA: os.DevNull}, {Cert: "/none", Key: "/none"}} {
		s.Server, s.TLS = "127.0.0.1:1", true
		if err := s.Watch(t.Context(), nil, nil); err == nil {
			t.Errorf("%+v: no error", s)
		}
	}
}

func perDay(key, value string, units uint32) *rls.RateLimitDescriptor {
	return &rls.RateLimitDescriptor{Key: key, Value: value, RateLimit: &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_DAY, RequestsPerUnit: units}}
}

// A management server sends strings, which are no numbers, booleans or anything else.
func TestStringsOfAManagementServerAreStrings(t *testing.T) {
	for _, text := range []string{"1e3", ".5_0", "010", "yes", "~", "<<", "!!binary x", "- a", "a: b", "#", "é\n\t\"'\\", "&a", "*a"} {
		key := text
		if text == "*a" {
			key = "k" // where it is a wildcard, as it should
		}
		sent := &rls.RateLimitConfig{Name: "r", Domain: text, Descriptors: []*rls.RateLimitDescriptor{perDay(key, text, 1)}}
		cfg, err := Source{}.read(response(t, "1", sent).GetResources())
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if found, err := cfg.Find(text, []config.Entry{{Key: key, Value: text}}); found.Rule == nil || err != nil {
			t.Errorf("%q: %v, %v", text, found.Rule, err)
		}
	}
}

func TestNewerFieldsOfAManagementServer(t *testing.T) {
	metadata := servertest.Must(structpb.NewStruct(map[string]any{"service": map[string]any{"name": "a", "tags": []any{1.5, nil}}}))(t)
	quota := perDay("k", "", 5)
	quota.QuotaMode, quota.Metadata = true, metadata
	one := &rls.RateLimitConfig{Name: "r", Domain: "d", Descriptors: []*rls.RateLimitDescriptor{quota}}
	cfg := servertest.Must(Source{}.read(response(t, "1", one).GetResources()))(t)
	found, err := cfg.Find("d", []config.Entry{{Key: "k", Value: "x"}})
	rule := found.Rule
	if err != nil || rule == nil || !rule.Quota || rule.Limits[0].Units != 5 {
		t.Errorf("%+v, %v", rule, err)
	}
	sent, err := structpb.NewStruct(rule.Metadata)
	if w := cfg.Warnings(); err != nil || !proto.Equal(sent, metadata) || len(w) != 0 {
		t.Errorf("metadata %v, %v, warnings %q", sent, err, w)
	}
}
