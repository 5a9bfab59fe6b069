package servertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// usualTimeout is the time that Envoy gives the service by default.
const usualTimeout = 20 * time.Millisecond

// A Proxy is what surrounds the filter. Upstream and Service are required.
type Proxy struct {
	// Upstream receives the requests that pass.
	Upstream http.Handler
	// Service is the rate limit service.
	Service pb.RateLimitServiceClient
	// Cluster is the name of the proxy's own cluster, and Destination that of the upstream's.
	Cluster, Destination string
}

// An Envoy stands in for Envoy's HTTP rate limit filter before an upstream. It does what the filter's documentation says,
// with a configuration in Envoy's own schema: it builds descriptors from a request, calls a rate limit service, and
// answers 429 or passes the request to the upstream. It is safe for concurrent use.
type Envoy struct {
	proxy  Proxy
	config *filterv3.RateLimit
	limits []limit
	// Unanswered counts requests for which the service gave no answer.
	Unanswered atomic.Int64
}

// NewEnvoy reads an envoy.extensions.filters.http.ratelimit.v3.RateLimit in YAML, with the rate limits of the route in
// rate_limits. A feature that the stand-in lacks is an error.
func NewEnvoy(config string, proxy Proxy) (*Envoy, error) {
	var tree any
	if err := yaml.Unmarshal([]byte(config), &tree); err != nil {
		return nil, err
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	f := &Envoy{proxy: proxy, config: &filterv3.RateLimit{}}
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
func (f *Envoy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
func (f *Envoy) call(r *http.Request, done bool) (*pb.RateLimitResponse, error) {
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
func (f *Envoy) refuse(w http.ResponseWriter, res *pb.RateLimitResponse) {
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
func (f *Envoy) addHeaders(header http.Header, res *pb.RateLimitResponse) {
	for _, h := range res.GetResponseHeadersToAdd() {
		add(header, h)
	}
	if f.config.EnableXRatelimitHeaders == filterv3.RateLimit_DRAFT_VERSION_03 {
		draft03(header, res.GetStatuses())
	}
}

func add(header http.Header, h *corev3.HeaderValue) { header.Add(h.GetKey(), h.GetValue()) }
