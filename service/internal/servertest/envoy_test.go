package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/sash/service/internal/servertest"
)

// A service answers as a test sets, and keeps the requests.
type service struct {
	asked  []string
	budget time.Duration // until the deadline of the last call; 0 for none
	answer func() (*pb.RateLimitResponse, error)
}

func (s *service) ShouldRateLimit(ctx context.Context, req *pb.RateLimitRequest, _ ...grpc.CallOption) (*pb.RateLimitResponse, error) {
	for _, d := range req.Descriptors {
		text := req.Domain + ":"
		for _, e := range d.Entries {
			text += fmt.Sprintf(" (%s, %s)", e.Key, e.Value)
		}
		if d.HitsAddend != nil {
			text += fmt.Sprintf(" x %d %v", d.HitsAddend.Value, d.IsNegativeHits)
		}
		s.asked = append(s.asked, text)
	}
	s.budget = 0
	if deadline, ok := ctx.Deadline(); ok {
		s.budget = time.Until(deadline)
	}
	if s.answer == nil {
		return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
	}
	return s.answer()
}

func through(t *testing.T, s *service, config string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "upstream ", r.Header.Get("x-added")) })
	f, err := servertest.NewEnvoy(config, servertest.Proxy{Upstream: upstream, Service: s, Cluster: "edge", Destination: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr, r.Header = "192.0.2.1:5000", header
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, r)
	return rec
}

// Each action makes the entries of its documentation.
func TestDescriptorsAreMadeByTheActionsOfTheRoute(t *testing.T) {
	header := http.Header{"X-User": {"ann"}, "X-Tag": {"a", "b"}}
	for actions, want := range map[string]string{
		`{source_cluster: {}}, {destination_cluster: {}}`: "d: (source_cluster, edge) (destination_cluster, shop)",
		`{remote_address: {}}`:                            "d: (remote_address, 192.0.2.1)",
		`{generic_key: {descriptor_value: a}}, {generic_key: {descriptor_key: k, descriptor_value: b}}`:                                              "d: (generic_key, a) (k, b)",
		`{request_headers: {header_name: x-user, descriptor_key: user}}`:                                                                             "d: (user, ann)",
		`{request_headers: {header_name: x-tag, descriptor_key: tag}}`:                                                                               "d: (tag, a,b)",
		`{remote_address: {}}, {request_headers: {header_name: x-no, descriptor_key: no}}`:                                                           "",
		`{remote_address: {}}, {request_headers: {header_name: x-no, descriptor_key: no, skip_if_absent: true}}`:                                     "d: (remote_address, 192.0.2.1)",
		`{header_value_match: {descriptor_value: m, headers: [{name: x-user, string_match: {exact: ann}}]}}`:                                         "d: (header_match, m)",
		`{header_value_match: {descriptor_value: m, headers: [{name: x-user, string_match: {exact: bob}}]}}`:                                         "",
		`{header_value_match: {descriptor_value: m, descriptor_key: k, expect_match: false, headers: [{name: x-no}]}}`:                               "d: (k, m)",
		`{header_value_match: {descriptor_value: m, headers: [{name: x-user, string_match: {prefix: a}}, {name: x-no}]}}`:                            "",
		`{header_value_match: {descriptor_value: m, headers: [{name: x-user, string_match: {exact: bob}, invert_match: true}]}}`:                     "d: (header_match, m)",
		`{remote_address: {}}], hits_addend: {number: 7, is_negative_hits: true}, x_ratelimit_option: UNSPECIFIED}, {actions: [{source_cluster: {}}`: "d: (remote_address, 192.0.2.1) x 7 true|d: (source_cluster, edge)",
	} {
		s := &service{}
		rec := through(t, s, "domain: d\nrate_limits: [{actions: ["+actions+"]}]", header)
		if got := strings.Join(s.asked, "|"); got != want || rec.Body.String() != "upstream " {
			t.Errorf("%s:\n\t     %q\n\twant %q", actions, got, want)
		}
	}
}

const address = "domain: d\nrate_limits: [{actions: [{remote_address: {}}]}]\n"

func TestAnswersOfTheService(t *testing.T) {
	limited := &pb.RateLimitResponse{
		OverallCode: pb.RateLimitResponse_OVER_LIMIT,
		Statuses: []*pb.RateLimitResponse_DescriptorStatus{
			{Code: pb.RateLimitResponse_OK},
			{Code: pb.RateLimitResponse_OVER_LIMIT, DurationUntilReset: durationpb.New(7 * time.Second), CurrentLimit: &pb.RateLimitResponse_RateLimit{
				RequestsPerUnit: 10, Unit: pb.RateLimitResponse_RateLimit_SECOND, Name: "per-ip"}},
			{Code: pb.RateLimitResponse_OK, LimitRemaining: 3, CurrentLimit: &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 1000, Unit: pb.RateLimitResponse_RateLimit_HOUR}},
		},
		ResponseHeadersToAdd: []*corev3.HeaderValue{{Key: "x-told", Value: "1"}},
	}
	passed := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, ResponseHeadersToAdd: limited.ResponseHeadersToAdd,
		RequestHeadersToAdd: []*corev3.HeaderValue{{Key: "x-added", Value: "yes"}}}
	failed := errors.New("no answer")
	for _, tt := range []struct {
		what, config string
		answer       *pb.RateLimitResponse
		err          error
		code         int
		body, header string
	}{
		{"it passes", "", passed, nil, 200, "upstream yes", "X-Told=1"},
		{"it is refused", "", limited, nil, 429, "", "X-Envoy-Ratelimited=true X-Told=1"},
		{"with a status of its own", "rate_limited_status: {code: 503}\ndisable_x_envoy_ratelimited_header: true\n", limited, nil, 503, "", "X-Told=1"},
		{"as draft 03 has it", "enable_x_ratelimit_headers: DRAFT_VERSION_03\n", limited, nil, 429, "",
			`X-Envoy-Ratelimited=true X-Ratelimit-Limit=10, 10;w=1;name="per-ip", 1000;w=3600 X-Ratelimit-Remaining=0 X-Ratelimit-Reset=7 X-Told=1`},
		{"with a time to wait", "enable_retry_after_header: true\nresponse_headers_to_add: [{header: {key: x-own, value: a}}]\n", limited, nil, 429, "",
			"Retry-After=7 X-Envoy-Ratelimited=true X-Own=a X-Told=1"},
		{"no answer lets it pass", "", nil, failed, 200, "upstream ", ""},
		{"no answer refuses", "failure_mode_deny: true\n", nil, failed, 500, "", ""},
		{"with its status", "failure_mode_deny: true\nstatus_on_error: {code: 503}\n", nil, failed, 503, "", ""},
	} {
		rec := through(t, &service{answer: func() (*pb.RateLimitResponse, error) { return tt.answer, tt.err }}, address+tt.config, http.Header{})
		rec.Header().Del("Content-Type")
		if got := spell(rec.Header()); rec.Code != tt.code || rec.Body.String() != tt.body || got != tt.header {
			t.Errorf("%s: %d %q with %s; want %d %q with %s", tt.what, rec.Code, rec.Body, got, tt.code, tt.body, tt.header)
		}
	}
}

func spell(header http.Header) string {
	var b strings.Builder
	_ = header.Write(&b)
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(b.String()), ": ", "="), "\r\n", " ")
}

func TestTheServiceHasTwentyMillisecondsUnlessTheConfigurationSays(t *testing.T) {
	s := &service{}
	for config, most := range map[string]time.Duration{"": 20 * time.Millisecond, "timeout: 5s\n": 5 * time.Second, "timeout: 0s\n": 0} {
		through(t, s, address+config, http.Header{})
		if s.budget > most || (s.budget == 0) != (most == 0) {
			t.Errorf("%q: %v, want at most %v", config, s.budget, most)
		}
	}
}

// By the documentation Envoy does not wait for the answer, so the response does not depend on it.
func TestUnitsOfTheResponseAreSentWhenItIsDone(t *testing.T) {
	s := &service{answer: func() (*pb.RateLimitResponse, error) {
		return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OVER_LIMIT}, nil
	}}
	config := "domain: d\nrate_limits: [{actions: [{generic_key: {descriptor_value: tokens}}], hits_addend: {number: 40}, apply_on_stream_done: true}%s]\n"
	if rec := through(t, s, fmt.Sprintf(config, ""), http.Header{}); rec.Code != 200 {
		t.Errorf("refused by what is sent afterwards: %d", rec.Code)
	}
	s.answer = nil
	through(t, s, fmt.Sprintf(config, ", {actions: [{remote_address: {}}]}"), http.Header{})
	if got := strings.Join(s.asked, "|"); got != "d: (generic_key, tokens) x 40 false|d: (remote_address, 192.0.2.1)|d: (generic_key, tokens) x 40 false" {
		t.Errorf("asked %s", got)
	}
}

func TestWhatTheStandInDoesNotDoIsAnError(t *testing.T) {
	for _, config := range []string{
		"domain: d\nrate_limits: [{actions: [{masked_remote_address: {}}]}]",
		"domain: d\nrate_limits: [{stage: 1, actions: [{remote_address: {}}]}]",
		"domain: d\nrate_limits: [{actions: [{header_value_match: {headers: [{name: a, range_match: {start: 1, end: 2}}]}}]}]",
		"domains: d",
	} {
		if _, err := servertest.NewEnvoy(config, servertest.Proxy{}); err == nil {
			t.Errorf("%s is taken", config)
		}
	}
}
