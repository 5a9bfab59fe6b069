package extproc_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
)

const used = `data: {"choices":[]}` + "\n\n" + `data: {"usage":{"prompt_tokens":30,"completion_tokens":12}}` + "\n\ndata: [DONE]\n\n"

// What a request reserved becomes what its response used, also where that is more. The model has the other ways in which it ends.
func TestAResponseSettles(t *testing.T) {
	for _, c := range []struct {
		name, status, body string
		countErrors        bool
		used               int64
	}{
		{"one chunk", "200", `{"usage":{"prompt_tokens":40,"completion_tokens":5}}`, false, 45},
		{"events", "200", used, false, 42},
		{"503 without a body", "503", "", false, 0},
		{"504 of a proxy", "504", "", false, 300},
		{"overrun", "200", `{"usage":{"prompt_tokens":400,"completion_tokens":5}}`, false, 405},
		{"503 that counts", "503", "", true, 300},
		{"usage where errors count", "200", used, true, 42},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := begin(t)
			if c.countErrors {
				w.use(strings.Replace(policy, "ask_for_usage: true", "ask_for_usage: true, count_errors: true", 1))
			}
			s := w.open(question)
			if res := s.posts("/v1/chat/completions", pad(100, 200)); res.GetRequestBody() == nil || res.GetRequestBody().GetResponse().GetBodyMutation() != nil {
				t.Fatalf("%v, not admitted as it is", res)
			}
			if left := w.left("x-user", "ann"); left != 700 {
				t.Errorf("%d left while the request runs", left)
			}
			servertest.Check(t, s.ends())
			servertest.Check(t, s.responds(responseHeaders(c.body == "", ":status", c.status), responseBody(c.body, true)))
			if tokens, requests := w.left("x-user", "ann"), w.left("account", "all"); tokens != 1000-c.used || requests != 4 {
				t.Errorf("%d tokens and %d requests left", tokens, requests)
			}
			if over := testutil.ToFloat64(w.stats.Overrun); over != float64(max(0, c.used-300)) {
				t.Errorf("%v tokens over the estimate", over)
			}
		})
	}
}

// A limit of requests may count refused ones beside a budget of tokens: it is not settled.
func TestBesideARuleThatCountsRefused(t *testing.T) {
	w := begin(t)
	w.use(policy + "  algorithm: sliding-log\n  count_refused: true\n")
	s := w.open(question)
	if res := s.posts("/v1/chat/completions", pad(100, 200)); res.GetRequestBody() == nil {
		t.Fatal(res)
	}
	servertest.Check(t, s.responds(responseHeaders(false, ":status", "200"), responseBody(used, true)))
	if tokens, requests := w.left("x-user", "ann"), w.left("account", "all"); tokens != 1000-42 || requests != 4 {
		t.Errorf("%d tokens and %d requests left", tokens, requests)
	}
}

// When the service ends, streams of responses go on.
func TestTheEndOfTheService(t *testing.T) {
	w := begin(t)
	s := w.open(question)
	s.posts("/v1/chat/completions", pad(100, 200))
	second := servertest.Must(w.client.Process(t.Context()))(t)
	servertest.Check(t, second.Send(s.observed(responseHeaders(false, ":status", "200"))))
	w.stop()
	servertest.Check(t, second.Send(s.observed(responseBody(used, true))))
	servertest.Check(t, (&stream{ExternalProcessor_ProcessClient: second}).ends())
	if left := w.left("x-user", "ann"); left != 1000-42 {
		t.Errorf("%d left", left)
	}
}

// A response settles nothing with a reservation that another key sealed, or without one, as that of a refused request. Where a reservation
// was lost this is counted.
func TestAResponseWithoutItsReservation(t *testing.T) {
	w := begin(t)
	s := w.open(question)
	s.posts("/v1/chat/completions", pad(100, 200))
	upstream := []string{":status", "200", "x-envoy-upstream-service-time", "1"}
	detail := func(of string) map[string]*structpb.Struct {
		return map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{"response.code_details": structpb.NewStringValue(of)}}}
	}
	for _, c := range []struct {
		name       string
		spaces     map[string]*structpb.Struct
		fields     []string
		attributes map[string]*structpb.Struct
		counted    float64
	}{
		{"without tokens", map[string]*structpb.Struct{"sash": {}}, upstream, detail("via_upstream"), 0},
		{"of another key", map[string]*structpb.Struct{"sash": {Fields: map[string]*structpb.Value{"reservation": structpb.NewStringValue("e30.e30")}}}, upstream, nil, 1},
		{"of Envoy itself", nil, []string{":status", "200"}, detail("request_payload_too_large"), 0},
		{"of the upstream, without metadata", nil, upstream, nil, 1},
		{"of the upstream, by its attribute", nil, []string{":status", "200"}, detail("via_upstream"), 1},
	} {
		before := testutil.ToFloat64(w.stats.Unsettled)
		first := responseHeaders(false, c.fields...)
		first.ObservabilityMode, first.Attributes, first.MetadataContext = true, c.attributes, &corev3.Metadata{FilterMetadata: c.spaces}
		second := w.open("")
		servertest.Check(t, second.Send(first))
		_ = second.Send(s.observed(responseBody(used, true))) // EOF if the stream has ended
		servertest.Check(t, second.ends())
		if n := testutil.ToFloat64(w.stats.Unsettled) - before; n != c.counted {
			t.Errorf("%s: %v are counted", c.name, n)
		}
	}
	if left := w.left("x-user", "ann"); left != 700 {
		t.Errorf("%d left", left)
	}
}

// A leaving store decides for a client that leaves meanwhile.
type leaving struct {
	driver.Store
	leave context.CancelFunc
}

func (s *leaving) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].MayCharge() > 0 {
		s.leave()
	}
	return cmp.Or(ctx.Err(), s.Store.Do(ctx, b))
}

func TestAClientThatLeavesIsChargedNoTokens(t *testing.T) {
	store := &leaving{Store: memstore.New(nil)}
	m := &model{world: &world{t: t, decider: servertest.Decider(t, store, policy)}}
	m.restart(false)
	p := m.stream(metadata.Pairs("sash", question))
	store.leave = p.leave
	p.requests <- requestHeaders(false, ":path", "/v1/chat/completions", "x-user", "ann")
	p.requests <- requestBody(pad(100, 200))
	if err, left := <-p.over, m.left("x-user", "ann"); !errors.Is(err, context.Canceled) || left != 1000 {
		t.Errorf("%v, %d tokens left", err, left)
	}
}
