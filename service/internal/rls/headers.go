package rls

import (
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/sash/service/internal/decide"
)

// Headers are the names of response headers with the state of the limit that is closest to refusing.
type Headers struct {
	// Limit, Remaining and Reset have the units of the limit, those left, and the seconds until that changes.
	Limit, Remaining, Reset string
}

// of returns the headers for statuses: of the last that is over its limit, as Envoy's service does, or else of the one with
// the fewest units left; none when nothing limits the request.
func (h *Headers) of(statuses []*pb.RateLimitResponse_DescriptorStatus) []*corev3.HeaderValue {
	var closest *pb.RateLimitResponse_DescriptorStatus
	for _, st := range statuses {
		if st.CurrentLimit == nil {
			continue
		}
		over := st.Code == pb.RateLimitResponse_OVER_LIMIT
		was := closest != nil && closest.Code == pb.RateLimitResponse_OVER_LIMIT
		if closest == nil || over || !was && st.LimitRemaining < closest.LimitRemaining {
			closest = st
		}
	}
	if closest == nil {
		return nil
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []*corev3.HeaderValue{
		{Key: h.Limit, Value: number(int64(closest.CurrentLimit.RequestsPerUnit))},
		{Key: h.Remaining, Value: number(int64(closest.LimitRemaining))},
		{Key: h.Reset, Value: number(closest.DurationUntilReset.GetSeconds())},
	}
}

// describeRequest describes the request to other filters of Envoy, with the metadata of the rules that have room, and no
// secret values of entries.
func describeRequest(req *pb.RateLimitRequest, parts []decide.Part, answers []decide.Answer) *structpb.Struct {
	descriptors := make([]any, len(req.GetDescriptors()))
	for i, d := range req.GetDescriptors() {
		entries := make([]any, len(parts[i].Entries))
		for j, e := range parts[i].Entries {
			entries[j] = e.Key + "=" + e.Value
		}
		one := map[string]any{"entries": entries}
		if l := d.GetLimit(); l != nil {
			one["limit"] = l.String()
		}
		if n := d.GetHitsAddend(); n != nil {
			one["hitsAddend"] = n.GetValue()
		}
		descriptors[i] = one
	}
	fields := map[string]any{"domain": req.GetDomain(), "descriptors": descriptors}
	if n := req.GetHitsAddend(); n != 0 {
		fields["hitsAddend"] = n
	}
	metadata := make(map[string]any)
	for i := range answers {
		a := &answers[i]
		if a.Rule != nil && !a.Rule.Unlimited && !a.Replaced && (!a.Refused || a.Shadow()) {
			merge(metadata, a.Rule.Metadata)
		}
	}
	if len(metadata) > 0 {
		fields["metadata"] = metadata
	}
	all, _ := structpb.NewStruct(fields) // the configuration and protobuf have checked what is in it
	return all
}

// merge adds copies of what is not there yet.
func merge(into, of map[string]any) {
	for key, value := range of {
		there, ok := into[key]
		inner, nested := value.(map[string]any)
		switch {
		case !ok && nested:
			deeper := make(map[string]any)
			into[key] = deeper
			merge(deeper, inner)
		case !ok:
			into[key] = value
		case nested:
			if deeper, both := there.(map[string]any); both {
				merge(deeper, inner)
			}
		}
	}
}
