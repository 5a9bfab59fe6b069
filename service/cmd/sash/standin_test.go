package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// usualTimeout is the time that Envoy gives the service by default.
const usualTimeout = 20 * time.Millisecond

// An envoyProxy is what surrounds the filter. Upstream and Service are required.
type envoyProxy struct {
	// Upstream receives the requests that pass.
	Upstream http.Handler
	// Service is the rate limit service.
	Service pb.RateLimitServiceClient
	// Cluster is the name of the proxy's own cluster, and Destination that of the upstream's.
	Cluster, Destination string
}

// A standIn stands in for Envoy's HTTP rate limit filter before an upstream. It does what the filter's documentation says,
// with a configuration in Envoy's own schema: it builds descriptors from a request, calls a rate limit service, and
// answers 429 or passes the request to the upstream. It is safe for concurrent use.
type standIn struct {
	proxy  envoyProxy
	config *filterv3.RateLimit
	limits []limit
	// Unanswered counts requests for which the service gave no answer.
	Unanswered atomic.Int64
}

// newStandIn reads an envoy.extensions.filters.http.ratelimit.v3.RateLimit in YAML, with the rate limits of the route in
// rate_limits. A feature that the stand-in lacks is an error.
func newStandIn(config string, proxy envoyProxy) (*standIn, error) {
	var tree any
	if err := yaml.Unmarshal([]byte(config), &tree); err != nil {
		return nil, err
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	f := &standIn{proxy: proxy, config: &filterv3.RateLimit{}}
	if err := protojson.Unmarshal(text, f.config); err != nil {
		return nil, err
	}
	for i, route := range f.config.RateLimits {
		l, err := proxy.limit(route)
		if err != nil {
			return nil, fmt.Errorf("rate_limits %d: %w", i, err)
		}
		f.limits = append(f.limits, l)
	}
	return f, nil
}

// ServeHTTP calls the service if the request has descriptors. Without an answer the request passes, unless the
// configuration has failure_mode_deny.
func (f *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer f.call(r, true) //nolint:errcheck // by the documentation Envoy does not wait for the answer
	res, err := f.call(r, false)
	switch {
	case err != nil && f.config.FailureModeDeny:
		f.Unanswered.Add(1)
		code := int(f.config.StatusOnError.GetCode())
		if code == 0 {
			code = http.StatusInternalServerError
		}
		w.WriteHeader(code)
		return
	case err != nil:
		f.Unanswered.Add(1)
	case res.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT:
		f.refuse(w, res)
		return
	}
	for _, h := range res.GetRequestHeadersToAdd() {
		r.Header.Add(h.Key, h.Value)
	}
	f.addHeaders(w.Header(), res)
	f.proxy.Upstream.ServeHTTP(w, r)
}

// call sends the descriptors of the request, or those that the configuration sends when the response is done. Without
// descriptors it does not call the service and returns nil.
func (f *standIn) call(r *http.Request, done bool) (*pb.RateLimitResponse, error) {
	req := &pb.RateLimitRequest{Domain: f.config.Domain}
	for _, l := range f.limits {
		if entries, ok := l.entries(r); ok && l.done == done {
			d := &common.RateLimitDescriptor{Entries: entries, IsNegativeHits: l.negative}
			if l.hits != nil {
				d.HitsAddend = wrapperspb.UInt64(l.hits.Value)
			}
			req.Descriptors = append(req.Descriptors, d)
		}
	}
	if len(req.Descriptors) == 0 {
		return nil, nil
	}
	ctx, timeout := r.Context(), usualTimeout
	if f.config.Timeout != nil {
		timeout = f.config.Timeout.AsDuration()
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return f.proxy.Service.ShouldRateLimit(ctx, req)
}

// refuse answers a request that is over its limit.
func (f *standIn) refuse(w http.ResponseWriter, res *pb.RateLimitResponse) {
	code := int(f.config.RateLimitedStatus.GetCode())
	if code < http.StatusBadRequest {
		code = http.StatusTooManyRequests
	}
	f.addHeaders(w.Header(), res)
	for _, option := range f.config.ResponseHeadersToAdd {
		add(w.Header(), option.Header)
	}
	if !f.config.DisableXEnvoyRatelimitedHeader {
		w.Header().Set("x-envoy-ratelimited", "true")
	}
	if f.config.EnableRetryAfterHeader && code == http.StatusTooManyRequests {
		retryAfter(w.Header(), res.Statuses)
	}
	w.WriteHeader(code)
	_, _ = w.Write(res.RawBody) // a client that is gone needs no answer
}

// addHeaders adds the response's headers and those about the limits, for passed and refused requests.
func (f *standIn) addHeaders(header http.Header, res *pb.RateLimitResponse) {
	for _, h := range res.GetResponseHeadersToAdd() {
		add(header, h)
	}
	if f.config.EnableXRatelimitHeaders == filterv3.RateLimit_DRAFT_VERSION_03 {
		draft03(header, res.GetStatuses())
	}
}

func add(header http.Header, h *corev3.HeaderValue) { header.Add(h.GetKey(), h.GetValue()) }

// A limit makes one descriptor of a request.
type limit struct {
	actions  []action
	hits     *wrapperspb.UInt64Value
	negative bool
	done     bool // sent when the response is done
}

// An action returns a value for a key. Without a value the entry is left out if skip is set, and otherwise the descriptor.
type action func(*http.Request) (key, value string, has, skip bool)

// entries returns the descriptor's entries, or none if an action has no value for the request.
func (l *limit) entries(r *http.Request) ([]*common.RateLimitDescriptor_Entry, bool) {
	var entries []*common.RateLimitDescriptor_Entry
	for _, action := range l.actions {
		key, value, has, skip := action(r)
		if has {
			entries = append(entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		} else if !skip {
			return nil, false
		}
	}
	return entries, len(entries) > 0
}

func (p *envoyProxy) limit(route *routev3.RateLimit) (limit, error) {
	l := limit{hits: route.GetHitsAddend().GetNumber(), negative: route.GetHitsAddend().GetIsNegativeHits(), done: route.ApplyOnStreamDone}
	if route.Limit != nil || route.Stage != nil || route.DisableKey != "" || route.GetHitsAddend().GetFormat() != "" {
		return l, fmt.Errorf("limit, stage, disable_key and the format of hits_addend are not supported here")
	}
	for _, configured := range route.Actions {
		a, err := p.action(configured)
		if err != nil {
			return l, err
		}
		l.actions = append(l.actions, a)
	}
	return l, nil
}

// always is an action that has a value for every request.
func always(key, value string) action {
	return func(*http.Request) (string, string, bool, bool) { return key, value, true, false }
}

func (p *envoyProxy) action(a *routev3.RateLimit_Action) (action, error) {
	switch a := a.ActionSpecifier.(type) {
	case *routev3.RateLimit_Action_SourceCluster_:
		return always("source_cluster", p.Cluster), nil
	case *routev3.RateLimit_Action_DestinationCluster_:
		return always("destination_cluster", p.Destination), nil
	case *routev3.RateLimit_Action_GenericKey_:
		return always(cmp.Or(a.GenericKey.DescriptorKey, "generic_key"), a.GenericKey.DescriptorValue), nil
	case *routev3.RateLimit_Action_RemoteAddress_:
		return func(r *http.Request) (string, string, bool, bool) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			return "remote_address", host, err == nil, false
		}, nil
	case *routev3.RateLimit_Action_RequestHeaders_:
		h := a.RequestHeaders
		return func(r *http.Request) (string, string, bool, bool) {
			values := headerValues(r, h.HeaderName)
			return h.DescriptorKey, strings.Join(values, ","), len(values) > 0, h.SkipIfAbsent
		}, nil
	case *routev3.RateLimit_Action_HeaderValueMatch_:
		m := a.HeaderValueMatch
		for _, matcher := range m.Headers {
			if matcher.GetStringMatch() == nil && matcher.HeaderMatchSpecifier != nil && !matcher.GetPresentMatch() {
				return nil, fmt.Errorf("the match %v is not supported here", matcher)
			}
		}
		wanted := m.ExpectMatch == nil || m.ExpectMatch.Value
		return func(r *http.Request) (string, string, bool, bool) {
			return cmp.Or(m.DescriptorKey, "header_match"), m.DescriptorValue, matchAll(m.Headers, r) == wanted, false
		}, nil
	}
	return nil, fmt.Errorf("the action %v is not supported here", a)
}

// headerValues returns the values of a header, of which Envoy has one with the path and the query.
func headerValues(r *http.Request, name string) []string {
	if name == ":path" {
		return []string{r.URL.RequestURI()}
	}
	return r.Header.Values(name)
}

func matchAll(all []*routev3.HeaderMatcher, r *http.Request) bool {
	for _, m := range all {
		values := headerValues(r, m.Name)
		matches := len(values) > 0
		if s := m.GetStringMatch(); matches && s != nil {
			value := strings.Join(values, ",")
			matches = s.GetExact() != "" && value == s.GetExact() || s.GetPrefix() != "" && strings.HasPrefix(value, s.GetPrefix())
		}
		if matches == m.InvertMatch {
			return false
		}
	}
	return true
}

// seconds are the windows of the units of a limit in the response.
var seconds = map[pb.RateLimitResponse_RateLimit_Unit]uint64{
	pb.RateLimitResponse_RateLimit_SECOND: 1, pb.RateLimitResponse_RateLimit_MINUTE: 60,
	pb.RateLimitResponse_RateLimit_HOUR: 3600, pb.RateLimitResponse_RateLimit_DAY: 86_400,
	pb.RateLimitResponse_RateLimit_WEEK: 604_800, pb.RateLimitResponse_RateLimit_MONTH: 2_592_000,
	pb.RateLimitResponse_RateLimit_YEAR: 31_536_000,
}

// draft03 adds the X-RateLimit headers: those of the limit with the fewest units left, and all limits, as in "10, 10;w=1;name="per-ip", 1000;w=3600".
func draft03(header http.Header, statuses []*pb.RateLimitResponse_DescriptorStatus) {
	var least *pb.RateLimitResponse_DescriptorStatus
	policy := ""
	for _, st := range statuses {
		limit := st.GetCurrentLimit()
		if limit == nil {
			continue
		}
		if least == nil || st.LimitRemaining < least.LimitRemaining {
			least = st
		}
		window := seconds[limit.Unit]
		if m := limit.UnitMultiplier; m != nil {
			window *= uint64(m.Value)
		}
		if window == 0 {
			continue
		}
		policy += fmt.Sprintf(", %d;w=%d", limit.RequestsPerUnit, window)
		if limit.Name != "" {
			policy += fmt.Sprintf(`;name="%s"`, limit.Name)
		}
	}
	if least == nil {
		return
	}
	header.Set("x-ratelimit-limit", strconv.Itoa(int(least.CurrentLimit.RequestsPerUnit))+policy)
	header.Set("x-ratelimit-remaining", strconv.Itoa(int(least.LimitRemaining)))
	header.Set("x-ratelimit-reset", strconv.FormatInt(least.DurationUntilReset.GetSeconds(), 10))
}

// retryAfter adds the longest time until an exceeded limit resets, at least a second, unless the service did.
func retryAfter(header http.Header, statuses []*pb.RateLimitResponse_DescriptorStatus) {
	longest := int64(0)
	for _, st := range statuses {
		if st.GetCode() == pb.RateLimitResponse_OVER_LIMIT {
			longest = max(longest, st.DurationUntilReset.GetSeconds(), 1)
		}
	}
	if longest > 0 && header.Get("Retry-After") == "" {
		header.Set("Retry-After", strconv.FormatInt(longest, 10))
	}
}
