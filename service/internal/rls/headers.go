package rls

import (
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/sash/service/internal/config"
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

// describeRequest describes the request to other filters of Envoy, with the metadata of the rules that have room.
func describeRequest(req *pb.RateLimitRequest, parts []decide.Part, answers []decide.Answer) *structpb.Struct {
	descriptors := make([]*structpb.Value, len(req.GetDescriptors()))
	for i, d := range req.GetDescriptors() {
		descriptors[i] = structpb.NewStructValue(describe(d, parts[i].Entries))
	}
	fields := map[string]*structpb.Value{
		"domain":      structpb.NewStringValue(req.GetDomain()),
		"descriptors": structpb.NewListValue(&structpb.ListValue{Values: descriptors}),
	}
	if n := req.GetHitsAddend(); n != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n))
	}
	all := &structpb.Struct{Fields: make(map[string]*structpb.Value)}
	for i := range answers {
		a := &answers[i]
		if a.Rule == nil || a.Rule.Metadata == nil || a.Rule.Unlimited || a.Replaced || a.Refused && !a.Shadow() {
			continue
		}
		if of, err := structpb.NewStruct(a.Rule.Metadata); err == nil { // the configuration has checked it
			merge(all, of)
		}
	}
	if len(all.Fields) > 0 {
		fields["metadata"] = structpb.NewStructValue(all)
	}
	return &structpb.Struct{Fields: fields}
}

// merge adds what is not there yet.
func merge(into, of *structpb.Struct) {
	for key, value := range of.GetFields() {
		there, ok := into.Fields[key]
		switch {
		case !ok:
			into.Fields[key] = value
		case there.GetStructValue() != nil && value.GetStructValue() != nil:
			merge(there.GetStructValue(), value.GetStructValue())
		}
	}
}

// describe describes a descriptor, whose entries have no secret values.
func describe(d *common.RateLimitDescriptor, of []config.Entry) *structpb.Struct {
	entries := make([]*structpb.Value, len(of))
	for i, e := range of {
		entries[i] = structpb.NewStringValue(e.Key + "=" + e.Value)
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if l := d.GetLimit(); l != nil {
		fields["limit"] = structpb.NewStringValue(l.String())
	}
	if n := d.GetHitsAddend(); n != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}
