package extproc_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/structpb"

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

// A response settles nothing with a reservation that another key sealed, or without one, as that of a refused request.
func TestAResponseWithoutItsReservation(t *testing.T) {
	w := begin(t)
	s := w.open(question)
	s.posts("/v1/chat/completions", pad(100, 200))
	for _, token := range []string{"", "e30.e30"} {
		s.saved["sash"].Fields["reservation"] = structpb.NewStringValue(token)
		servertest.Check(t, s.responds(responseHeaders(false, ":status", "200"), responseBody(used, true)))
	}
	if left := w.left("x-user", "ann"); left != 700 {
		t.Errorf("%d left", left)
	}
}
