package rls

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/sash"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// Bounds of a request.
const (
	maxDescriptors   = 4096
	maxRequestLimits = 8
	maxMessage       = 4 << 20 // bytes, what gRPC servers take by default. It bounds the entries of a descriptor, too
)

// partsOf reads a request, and returns its parts and the rights that it needs. The error says what to correct.
func partsOf(req *pb.RateLimitRequest) (parts []decide.Part, need access.Right, err error) {
	descriptors := req.GetDescriptors()
	switch {
	case req.GetDomain() == "":
		return nil, 0, errors.New("rate limit domain must not be empty")
	case len(descriptors) == 0:
		return nil, 0, errors.New("rate limit descriptor list must not be empty")
	case len(descriptors) > maxDescriptors:
		return nil, 0, fmt.Errorf("%d descriptors: there may be at most %d", len(descriptors), maxDescriptors)
	}
	usual := max(1, int64(req.GetHitsAddend())) // absent is 1
	refunds, limits := 0, 0                     // each takes several calls of the store, perhaps one after the other
	parts, need = make([]decide.Part, len(descriptors)), access.Decide
	for i, d := range descriptors {
		part := &parts[i]
		part.Entries = make([]config.Entry, len(d.GetEntries()))
		for j, e := range d.GetEntries() {
			part.Entries[j] = config.Entry{Key: e.GetKey(), Value: e.GetValue()}
		}
		part.Cost = usual
		if own := d.GetHitsAddend(); own != nil {
			part.Cost, part.Always = int64(min(own.GetValue(), math.MaxInt64)), true
		}
		if part.RequestLimit, err = requestLimit(d.GetLimit()); err != nil {
			return nil, 0, fmt.Errorf("descriptor %d: %w", i, err)
		}
		if part.Refund = d.GetIsNegativeHits(); part.Refund {
			refunds, need = refunds+1, need|access.Refund
		}
		if part.RequestLimit != nil {
			limits, need = limits+1, need|access.Bring(part.RequestLimit)
		}
	}
	switch {
	case refunds > decide.MaxRefunds:
		return nil, 0, fmt.Errorf("%d descriptors with is_negative_hits: there may be at most %d; send several requests",
			refunds, decide.MaxRefunds)
	case limits > maxRequestLimits:
		return nil, 0, fmt.Errorf("%d descriptors with a limit: there may be at most %d; send several requests", limits, maxRequestLimits)
	}
	return parts, need, nil
}

// A unit is a unit of time in the protocol. Requests number units differently than responses, and have no week.
type unit struct {
	request  typev3.RateLimitUnit
	response pb.RateLimitResponse_RateLimit_Unit
	window   time.Duration
}

// units are all units, the longest first. A month is 30 days and a year 365.
var units = []unit{
	{typev3.RateLimitUnit_YEAR, pb.RateLimitResponse_RateLimit_YEAR, 365 * 24 * time.Hour},
	{typev3.RateLimitUnit_MONTH, pb.RateLimitResponse_RateLimit_MONTH, 30 * 24 * time.Hour},
	{-1, pb.RateLimitResponse_RateLimit_WEEK, 7 * 24 * time.Hour},
	{typev3.RateLimitUnit_DAY, pb.RateLimitResponse_RateLimit_DAY, 24 * time.Hour},
	{typev3.RateLimitUnit_HOUR, pb.RateLimitResponse_RateLimit_HOUR, time.Hour},
	{typev3.RateLimitUnit_MINUTE, pb.RateLimitResponse_RateLimit_MINUTE, time.Minute},
	{typev3.RateLimitUnit_SECOND, pb.RateLimitResponse_RateLimit_SECOND, time.Second},
}

func requestLimit(o *common.RateLimitDescriptor_RateLimitOverride) (*sash.Limit, error) {
	if o == nil {
		return nil, nil
	}
	at := slices.IndexFunc(units, func(u unit) bool { return u.request == o.GetUnit() })
	if at < 0 || o.GetUnit() <= 0 {
		return nil, fmt.Errorf("the limit has the unit %v: it must be SECOND, MINUTE, HOUR, DAY, MONTH or YEAR", o.GetUnit())
	}
	window, times := units[at].window, int64(1)
	if m := o.GetUnitMultiplier(); m != nil {
		times = int64(m.GetValue())
	}
	if times < 1 || times > int64(sash.MaxWindow/window) {
		return nil, fmt.Errorf("the limit has %d times the unit %v: the window must be at most %v", times, o.GetUnit(), sash.MaxWindow)
	}
	return new(sash.Every(int64(o.GetRequestsPerUnit()), time.Duration(times)*window)), nil
}

func (s *Service) response(req *pb.RateLimitRequest, parts []decide.Part, answers []decide.Answer) *pb.RateLimitResponse {
	res := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, len(answers))}
	for i := range answers {
		res.Statuses[i] = statusOf(&answers[i])
		if s.opts.Counting != nil {
			asCounted(res.Statuses[i], &answers[i])
		}
		if !answers[i].Allowed() {
			res.OverallCode = pb.RateLimitResponse_OVER_LIMIT
		}
	}
	if s.opts.Headers != nil {
		res.ResponseHeadersToAdd = s.opts.Headers.of(res.Statuses)
	}
	if s.opts.Metadata {
		res.DynamicMetadata = describeRequest(req, parts, answers)
	}
	if s.opts.Shadow && res.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		res.OverallCode = pb.RateLimitResponse_OK
		s.opts.Stats.Service.GlobalShadow.Add(1)
	}
	return res
}

func statusOf(a *decide.Answer) *pb.RateLimitResponse_DescriptorStatus {
	st := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
	if a.Rule != nil && a.Rule.Unlimited && !a.Replaced {
		st.LimitRemaining = math.MaxUint32
	}
	limit, ok := a.Tightest()
	if !ok {
		return st
	}
	if a.Refused {
		limit = a.RefusedBy
		if !a.Shadow() {
			st.Code = pb.RateLimitResponse_OVER_LIMIT
		}
	}
	st.CurrentLimit = spellLimit(limit.Limit)
	st.LimitRemaining = clamp(limit.Remaining)
	st.DurationUntilReset = &durationpb.Duration{Seconds: int64((limit.ReleaseAfter + time.Second - 1) / time.Second)} // rounded up
	return st
}

// asCounted turns a status into what Envoy's service answers: a limit that is over has nothing left, and resets at the end of its window.
func asCounted(st *pb.RateLimitResponse_DescriptorStatus, a *decide.Answer) {
	limit, ok := a.Tightest()
	if !ok || a.BannedBy != nil || limit.Limit.Window <= 0 {
		return
	}
	if a.Refused {
		limit, st.LimitRemaining = a.RefusedBy, 0
	}
	at := a.At
	if at.IsZero() {
		at = time.Now()
	}
	window := int64(limit.Limit.Window / time.Second)
	if window > 0 {
		st.DurationUntilReset = durationpb.New(time.Duration(window-at.Unix()%window) * time.Second)
	}
}

// spellLimit returns a limit in the protocol's units. A window that is not whole seconds has the unit UNKNOWN and the limit's name.
func spellLimit(l sash.Limit) *pb.RateLimitResponse_RateLimit {
	out := &pb.RateLimitResponse_RateLimit{RequestsPerUnit: clamp(l.Units)}
	if plain := (sash.Limit{Units: l.Units, Window: l.Window, Period: l.Period, Zone: l.Zone}); l.Name != plain.String() {
		out.Name = l.Name // if the configuration gives one
	}
	if out.Unit = periods[l.Period]; l.Period != 0 || l.Window == 0 { // a ban has neither
		return out
	}
	for _, unit := range units {
		if l.Window%unit.window == 0 {
			out.Unit = unit.response
			if times := l.Window / unit.window; times > 1 {
				out.UnitMultiplier = wrapperspb.UInt32(clamp(int64(times)))
			}
			return out
		}
	}
	out.Name = l.Name
	return out
}

var periods = map[sash.Period]pb.RateLimitResponse_RateLimit_Unit{
	sash.CalendarHour: pb.RateLimitResponse_RateLimit_HOUR, sash.CalendarDay: pb.RateLimitResponse_RateLimit_DAY,
	sash.CalendarMonth: pb.RateLimitResponse_RateLimit_MONTH,
}

func clamp(n int64) uint32 { return uint32(max(0, min(n, math.MaxUint32))) }

// Headers are the names of response headers with the state of the limit that is closest to refusing.
type Headers struct {
	// Limit, Remaining and Reset name the headers for the limit's units, the units left, and the seconds until that changes.
	Limit, Remaining, Reset string
}

// of returns the headers for the last status over its limit, as Envoy's service does, or else for the one with the fewest units left.
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

// describeRequest returns metadata for other filters: the request without secret values, and the metadata of the rules that have room.
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

func merge(into, of map[string]any) {
	for key, value := range of {
		inner, nested := value.(map[string]any)
		there, known := into[key]
		if nested && !known {
			there = make(map[string]any)
			into[key] = there
		}
		if deeper, both := there.(map[string]any); nested && both {
			merge(deeper, inner)
		} else if !known {
			into[key] = value
		}
	}
}
