package servertest

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

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

func (p *Proxy) limit(route *routev3.RateLimit) (limit, error) {
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

func (p *Proxy) action(a *routev3.RateLimit_Action) (action, error) {
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
