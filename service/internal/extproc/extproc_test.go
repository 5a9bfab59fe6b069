package extproc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	ext "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/extproc"
	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/wire"
)

func TestMain(m *testing.M) { servertest.NoLeak(m) }

const policy = `
domain: ai
descriptors:
- key: x-user
  limits: ["1000/1m"]
  tokens: {format: openai, default_max: 300, ask_for_usage: true}
- key: x-claude
  limits: ["1000/1m"]
  tokens: {format: anthropic}
- key: x-gem
  limits: ["1000/1m"]
  tokens: {format: gemini, default_max: 200}
- key: account
  limits: ["5/1m"]
`

// A world is a service on a loopback port, and the client that Envoy is.
type world struct {
	t       *testing.T
	decider *decide.Decider
	stats   *stats.Registry
	client  ext.ExternalProcessorClient
	stop    context.CancelFunc
	ended   chan error
}

func begin(t *testing.T) *world {
	t.Helper()
	return beginWith(t, "anonymous: {allow: [decide]}", false)
}

// beginWith begins with a file of rights, and perhaps SHADOW_MODE.
func beginWith(t *testing.T, rights string, shadow bool) *world {
	t.Helper()
	w := &world{t: t, decider: servertest.Decider(t, memstore.New(nil), policy), stats: stats.New(nil), ended: make(chan error, 1)}
	quiet, gate := slog.New(slog.DiscardHandler), servertest.Gate(t, rights)
	listener := servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	protocol := rls.New(w.decider, &rls.Options{Access: gate, Log: quiet})
	tokens := func(to grpc.ServiceRegistrar, _ <-chan struct{}) {
		opts := extproc.Options{Shadow: shadow, Room: &protocol.Room, Access: gate, Tokens: wire.NewTokens(), Stats: w.stats, Log: quiet}
		extproc.Register(to, w.decider, opts)
	}
	server := rls.Server{Log: quiet, Lasting: []rls.Lasting{{Method: extproc.Method, Register: tokens}}}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	go func() { w.ended <- server.Serve(ctx, listener, protocol) }()
	conn := servertest.Must(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	w.client = ext.NewExternalProcessorClient(conn)
	t.Cleanup(func() {
		_ = conn.Close()
		w.stop()
		servertest.Check(t, <-w.ended)
	})
	return w
}

func (w *world) use(rules string) {
	w.t.Helper()
	cfg := servertest.Must(config.Parse(config.Defaults{}, false, config.File{Name: "rules.yaml", Text: []byte(rules)}))(w.t)
	servertest.Check(w.t, w.decider.Use(cfg))
}

func (w *world) left(key, value string) int64 {
	w.t.Helper()
	req := decide.One("ai", []config.Entry{{Key: key, Value: value}}, nil)
	return servertest.Must(w.decider.Peek(w.t.Context(), req))(w.t)[0].Limits[0].Remaining
}

// A stream is that of the first filter for one request.
type stream struct {
	ext.ExternalProcessor_ProcessClient
	*world
	leave context.CancelFunc
	saved map[string]*structpb.Struct // dynamic metadata, by namespace
}

func (w *world) open(question string) *stream {
	w.t.Helper()
	ctx, leave := context.WithTimeout(metadata.AppendToOutgoingContext(w.t.Context(), "sash", question), 5*time.Minute)
	return &stream{ExternalProcessor_ProcessClient: servertest.Must(w.client.Process(ctx))(w.t), world: w, leave: leave, saved: map[string]*structpb.Struct{}}
}

// ask sends messages, and returns the last of their answers, or the refusal.
func (s *stream) ask(all ...*ext.ProcessingRequest) (res *ext.ProcessingResponse) {
	s.t.Helper()
	for _, req := range all {
		servertest.Check(s.t, s.Send(req))
	}
	for range all {
		if res = servertest.Must(s.Recv())(s.t); res.GetImmediateResponse() != nil {
			return res
		}
		s.save(res)
	}
	return res
}

func (s *stream) save(res *ext.ProcessingResponse) {
	for space, value := range res.GetDynamicMetadata().GetFields() {
		s.saved[space] = value.GetStructValue()
	}
}

// responds sends a response by the second filter, and returns the error that its stream ends with.
func (s *stream) responds(all ...*ext.ProcessingRequest) error {
	s.t.Helper()
	ctx, leave := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer leave()
	second := &stream{ExternalProcessor_ProcessClient: servertest.Must(s.client.Process(ctx))(s.t)}
	for _, m := range all {
		_ = second.Send(s.observed(m)) // EOF if the stream has ended
	}
	return second.ends()
}

// observed returns a message as the second filter sends it.
func (s *stream) observed(m *ext.ProcessingRequest) *ext.ProcessingRequest {
	m.ObservabilityMode = true
	m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"sash": s.saved["sash"]}}
	return m
}

func headers(end bool, fields ...string) *ext.HttpHeaders {
	h := &ext.HttpHeaders{Headers: &corev3.HeaderMap{}, EndOfStream: end}
	for i := 0; i < len(fields); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &corev3.HeaderValue{Key: fields[i], RawValue: []byte(fields[i+1])})
	}
	return h
}

func requestHeaders(end bool, fields ...string) *ext.ProcessingRequest {
	return &ext.ProcessingRequest{
		Request: &ext.ProcessingRequest_RequestHeaders{RequestHeaders: headers(end, fields...)},
		ProtocolConfig: &ext.ProtocolConfiguration{
			RequestBodyMode: filterv3.ProcessingMode_STREAMED, SendBodyWithoutWaitingForHeaderResponse: true,
		},
	}
}

func requestBody(body string) *ext.ProcessingRequest {
	return &ext.ProcessingRequest{Request: &ext.ProcessingRequest_RequestBody{RequestBody: &ext.HttpBody{Body: []byte(body), EndOfStream: true}}}
}

func responseHeaders(end bool, fields ...string) *ext.ProcessingRequest {
	return &ext.ProcessingRequest{Request: &ext.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(end, fields...)}}
}

func responseBody(body string, end bool) *ext.ProcessingRequest {
	return &ext.ProcessingRequest{Request: &ext.ProcessingRequest_ResponseBody{ResponseBody: &ext.HttpBody{Body: []byte(body), EndOfStream: end}}}
}

var responseTrailers = &ext.ProcessingRequest{Request: &ext.ProcessingRequest_ResponseTrailers{ResponseTrailers: &ext.HttpTrailers{}}}

// ends waits for the end of a stream, and returns its error; nil is OK.
func (s *stream) ends() error {
	for {
		if _, err := s.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

const question = "domain=ai&descriptor=header:x-user&descriptor=account=all"

func (s *stream) posts(path, body string, fields ...string) *ext.ProcessingResponse {
	s.t.Helper()
	if fields == nil {
		fields = []string{"x-user", "ann"}
	}
	servertest.Check(s.t, s.Send(requestHeaders(false, append(fields, ":method", "POST", ":path", path, "accept-encoding", "gzip")...)))
	servertest.Check(s.t, s.Send(requestBody(body)))
	res := servertest.Must(s.Recv())(s.t)
	if res.GetImmediateResponse() != nil {
		return res
	}
	s.save(res)
	encoding := fieldsOf(res.GetRequestHeaders().GetResponse().GetHeaderMutation())
	if !maps.Equal(encoding, map[string]string{"accept-encoding": "identity"}) {
		s.t.Errorf("the upstream may compress: %v", encoding)
	}
	return servertest.Must(s.Recv())(s.t)
}

// pad returns a request of so many bytes with a maximum output, which is a path of the chat API.
func pad(bytes, output int) string {
	text := fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":""}`, output)
	return strings.Replace(text, `""`, `"`+strings.Repeat("x", bytes-len(text))+`"`, 1)
}

func fieldsOf(m *ext.HeaderMutation) map[string]string {
	fields := map[string]string{}
	for _, h := range m.GetSetHeaders() {
		fields[strings.ToLower(h.GetHeader().GetKey())] = string(h.GetHeader().GetRawValue())
	}
	return fields
}

// A client learns from a response what the decision left to it, in the fields that the filter names.
func TestAResponseHasTheFields(t *testing.T) {
	for how, want := range map[string]map[string]any{
		"": {
			"ratelimit-policy": `"x-user:1000/1m";q=1000;w=60, "account:5/1m";q=5;w=60`,
			"ratelimit":        `"x-user:1000/1m";r=700;t=60, "account:5/1m";r=4;t=60`,
		},
		"&fields=none": {},
	} {
		s := begin(t).open(question + how)
		s.posts("/v1/chat/completions", pad(100, 200))
		if got := s.saved["sash.fields"].AsMap(); !maps.Equal(got, want) {
			t.Errorf("%s: %v, not %v", how, got, want)
		}
	}
}

// A rule may say what content costs that the body only names: each use counts.
func TestContentElsewhereMayHaveACost(t *testing.T) {
	w := begin(t)
	w.use("domain: ai\ndescriptors: [{key: x-user, limits: [2000/1m], tokens: {format: openai, elsewhere: 500}}]")
	for body, content := range map[string]int64{
		`{"max_tokens":1,"previous_response_id":"a"}`:                                                                    500,
		`{"max_tokens":1,"prompt":{"id":"a"},"tools":[{"type":"web_search"},{"type":"function"}]}`:                       1000,
		`{"max_tokens":1,"messages":[{"content":[{"image_url":{"url":"a"}},{"file_id":"b"},{"image_url":{"url":""}}]}]}`: 1500,
	} {
		s := w.open("domain=ai&descriptor=header:x-user")
		if res := s.posts("/v1/chat/completions", body, "x-user", body); res.GetRequestBody() == nil {
			t.Errorf("%s: %v", body, res)
		}
		if left := w.left("x-user", body); left != 2000-content-int64(len(body))-1 {
			t.Errorf("%s: %d left", body, left)
		}
		s.leave()
	}
}

// With SHADOW_MODE nothing is refused, and what would be is counted.
func TestShadowMode(t *testing.T) {
	w := beginWith(t, "anonymous: {allow: [decide]}", true)
	for i, body := range []string{pad(500, 500), pad(500, 500), pad(500, 501), "\x1f\x8b", `{"max_tokens":1,"previous_response_id":"a"}`} {
		s := w.open("domain=ai&descriptor=header:x-user")
		if res := s.posts("/v1/chat/completions", body); res.GetRequestBody() == nil || res.GetRequestBody().GetResponse().GetBodyMutation() != nil {
			t.Errorf("%.40s: %v", body, res)
		}
		fields := s.saved["sash.fields"].GetFields()
		if (fields["ratelimit"] != nil) != (i == 0) || fields["retry-after"] != nil || w.stats.Service.GlobalShadow.Load() != uint64(i) {
			t.Errorf("%.40s: %v, and %d passed so far", body, fields, w.stats.Service.GlobalShadow.Load())
		}
		servertest.Check(t, s.responds(responseHeaders(false, ":status", "200"), responseBody(used, true)))
		if left := w.left("x-user", "ann"); left != 1000-42 {
			t.Errorf("%.40s: %d left", body, left)
		}
	}
	if n := w.stats.Rule("ai.x-user")[stats.Shadow].Load(); n != 1000+1001 {
		t.Errorf("%d units in shadow mode", n)
	}
}

// A rule that refuses everything does so for requests of every size, one of no tokens too, and charges nothing beside it.
func TestARuleThatRefusesEverything(t *testing.T) {
	w := begin(t)
	w.use(strings.Replace(policy, "limits: [\"5/1m\"]", "rate_limit: {unit: day, requests_per_unit: 0}", 1) +
		"- key: none\n  rate_limit: {unit: day, requests_per_unit: 0}\n  tokens: {format: openai, default_max: 300}\n")
	for question, bodies := range map[string]map[string]int{
		question:                         {"": 429, pad(100, 200): 429},
		"domain=ai&descriptor=none=some": {"": 429, pad(100, 200): 413},
	} {
		for body, want := range bodies {
			s := w.open(question)
			if res := s.posts("/v1/chat/completions", body).GetImmediateResponse(); int(res.GetStatus().GetCode()) != want {
				t.Errorf("%s, %d bytes: %v, want %d", question, len(body), res, want)
			}
			s.leave()
		}
	}
	if left := w.left("x-user", "ann"); left != 1000 {
		t.Errorf("%d tokens left", left)
	}
}

func TestRefusals(t *testing.T) {
	w := begin(t)
	full := pad(500, 400)
	for _, user := range []string{"x-user", "x-claude", "x-gem"} {
		w.open("domain=ai&descriptor=header:"+user).posts("/", full, user, "full")
	}
	for _, c := range []struct {
		name, user, value, body string
		status                  int
		want                    string
	}{
		{"OpenAI", "x-user", "full", full, 429, `{"error":{"code":null,"message":"the limit is reached: try again in `},
		{"Anthropic", "x-claude", "full", full, 429, `{"error":{"message":"the limit is reached: try again in `},
		{"Gemini", "x-gem", "full", full, 429, `{"error":{"code":429,"message":"the limit is reached: try again in `},
		{"above the limit", "x-claude", "new", pad(500, 501), 413, `the request can use 1001 tokens, and the limit is 1000`},
		{"compressed", "x-user", "new", "\x1f\x8b", 400, "compressed"},
		{"the same field twice", "x-user", "new", `{"max_tokens":1,"max_tokens":2}`, 400, "twice"},
		{"a field that is no object", "x-user", "new", `{"max_tokens":1,"stream":true,"stream_options":5}`, 400, "no object above include_usage"},
		{"content elsewhere", "x-user", "new", `{"max_tokens":1,"previous_response_id":"a"}`, 400, "previous_response_id"},
	} {
		s := w.open("domain=ai&descriptor=header:" + c.user)
		res := s.posts("/v1/chat/completions", c.body, c.user, c.value).GetImmediateResponse()
		fields := fieldsOf(res.GetHeaders())
		refused := c.status == 429
		if int(res.GetStatus().GetCode()) != c.status || !strings.Contains(string(res.GetBody()), c.want) || fields["content-type"] != "application/json" ||
			(fields["retry-after"] != "") != refused || (fields["ratelimit"] != "") != refused {
			t.Errorf("%s: %v %s with %v", c.name, res.GetStatus(), res.GetBody(), fields)
		}
		if err := s.ends(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.value == "new" && w.left(c.user, "new") != 1000 {
			t.Errorf("%s is charged", c.name)
		}
	}
}

// An API may decode a body by its fields, or take a path for another one, and then read another maximum than its bytes say.
func TestWhatAnAPIMayReadOtherwiseIsRefused(t *testing.T) {
	w := begin(t)
	const chat = "/v1/chat/completions"
	for _, c := range []struct {
		path, field, value string
		status             int
	}{
		{chat, "content-type", "application/json; charset=utf-7", 400},
		{chat, "content-type", "application/json; charset", 400},
		{chat, "content-encoding", "br", 400},
		{chat, "content-type", `application/json; charset="UTF-8"`, 0},
		{chat, "content-encoding", "identity", 0},
		{"/v1/responses;a", "a", "b", 400},
		{"/v1/responses%20", "a", "b", 400},
		{chat + "%3f/embeddings", "a", "b", 400},
		{chat + "?a=b;c#d", "a", "b", 0},
	} {
		res := w.open(question).posts(c.path, pad(100, 1), "x-user", "ann", c.field, c.value).GetImmediateResponse()
		if int(res.GetStatus().GetCode()) != c.status {
			t.Errorf("%s with %s: %s is %v %s", c.path, c.field, c.value, res.GetStatus(), res.GetBody())
		}
	}
	if left := w.left("x-user", "ann"); left != 1000-3*101 {
		t.Errorf("%d tokens left", left)
	}
}

// Envoy would not send the end of a request with trailers on.
func TestTrailersAreRefused(t *testing.T) {
	w := begin(t)
	s := w.open(question)
	whole := requestBody(pad(100, 200))
	whole.GetRequestBody().EndOfStream = false
	servertest.Check(t, s.Send(requestHeaders(false, ":path", "/v1/chat/completions", "x-user", "ann")))
	servertest.Check(t, s.Send(whole))
	res := servertest.Must(s.Recv())(t).GetImmediateResponse()
	if res.GetStatus().GetCode() != 400 || !strings.Contains(string(res.GetBody()), "trailers") || w.left("x-user", "ann") != 1000 {
		t.Errorf("%v, %d left", res, w.left("x-user", "ann"))
	}
}

// The limits of an override say what is too large.
func TestAnOverrideIsTheLimit(t *testing.T) {
	w := begin(t)
	for limit, want := range map[string]int{"5000/1m": 0, "500/1m": 413} {
		over := decide.Exception{Domain: "ai", Entries: []config.Entry{{Key: "x-user", Value: "ann"}}, Until: time.Now().Add(time.Hour)}
		over.Limits = []sash.Limit{servertest.Must(sash.ParseLimit(limit))(t)}
		w.decider.Except([]decide.Exception{over})
		res := w.open(question).posts("/v1/chat/completions", pad(500, 1000)).GetImmediateResponse()
		if got := int(res.GetStatus().GetCode()); got != want {
			t.Errorf("1,500 of %s: %d %s", limit, got, res.GetBody())
		}
	}
}

// A request without a body uses no tokens, and counts as a request. One that is refused for one limit is charged to none.
func TestRequestsCountTogether(t *testing.T) {
	w := begin(t)
	for i := range 6 {
		s := w.open(question)
		res := s.ask(requestHeaders(true, ":method", "GET", ":path", "/v1/models", "x-user", "ann"))
		if admitted := res.GetRequestHeaders() != nil; admitted != (i < 5) {
			t.Errorf("request %d: %v", i+1, res)
		}
		s.leave()
	}
	if res := w.open(question).posts("/v1/chat/completions", pad(100, 100)); res.GetImmediateResponse() == nil {
		t.Errorf("a sixth request: %v", res)
	}
	if left := w.left("x-user", "ann"); left != 1000 {
		t.Errorf("%d tokens left", left)
	}
}

func TestAFilterThatIsConfiguredWrongly(t *testing.T) {
	w := begin(t)
	for _, question := range []string{"", "domain=ai", "domain=other&descriptor=header:x-user", "domain=ai&descriptor=none"} {
		s := w.open(question)
		servertest.Check(t, s.Send(requestHeaders(true, ":path", "/")))
		if err := s.ends(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", question, err)
		}
	}
	buffered, piece := requestHeaders(false, ":path", "/"), requestBody("{")
	buffered.ProtocolConfig.RequestBodyMode = filterv3.ProcessingMode_BUFFERED
	piece.GetRequestBody().EndOfStream = false
	begins, unheld := requestHeaders(false, ":path", "/"), requestHeaders(true, ":path", "/")
	unheld.ObservabilityMode = true
	for name, c := range map[string]struct {
		sends []*ext.ProcessingRequest // and then ends
		want  codes.Code
	}{
		"another mode":                {[]*ext.ProcessingRequest{buffered}, codes.InvalidArgument},
		"a request that is not held":  {[]*ext.ProcessingRequest{unheld}, codes.InvalidArgument},
		"a body in pieces":            {[]*ext.ProcessingRequest{begins, piece, requestBody("}")}, codes.InvalidArgument},
		"a body without its end":      {[]*ext.ProcessingRequest{begins, piece}, codes.InvalidArgument},
		"a request without its body":  {[]*ext.ProcessingRequest{begins}, codes.Unknown},
		"a response without metadata": {[]*ext.ProcessingRequest{responseHeaders(false, ":status", "200")}, codes.InvalidArgument},
		"too large a body":            {[]*ext.ProcessingRequest{begins, requestBody(pad(5<<20, 10))}, codes.ResourceExhausted},
	} {
		s := w.open(question)
		for _, m := range c.sends {
			servertest.Check(t, s.Send(m))
		}
		servertest.Check(t, s.CloseSend())
		if err := s.ends(); status.Code(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACallerWithoutTheRight(t *testing.T) {
	w := beginWith(t, "anonymous: {allow: {web: [decide]}}", false)
	s := w.open(question)
	servertest.Check(t, s.Send(requestHeaders(true, ":path", "/")))
	if err := s.ends(); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}
