package rls

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

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

// partsOf reads a request, and returns the rights that it needs. The error says what to correct.
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
	refunds, limits := 0, 0                     // several calls of the store each, and perhaps decided one after the other
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

// A unit is one of the protocol's. Requests have other numbers than responses, and no week.
type unit struct {
	request  typev3.RateLimitUnit
	response pb.RateLimitResponse_RateLimit_Unit
	window   time.Duration
}

// units are all, the longest first: a month is 30 days and a year 365.
var units = []unit{
	{typev3.RateLimitUnit_YEAR, pb.RateLimitResponse_RateLimit_YEAR, 365 * 24 * time.Hour},
	{typev3.RateLimitUnit_MONTH, pb.RateLimitResponse_RateLimit_MONTH, 30 * 24 * time.Hour},
	{-1, pb.RateLimitResponse_RateLimit_WEEK, 7 * 24 * time.Hour},
	{typev3.RateLimitUnit_DAY, pb.RateLimitResponse_RateLimit_DAY, 24 * time.Hour},
	{typev3.RateLimitUnit_HOUR, pb.RateLimitResponse_RateLimit_HOUR, time.Hour},
	{typev3.RateLimitUnit_MINUTE, pb.RateLimitResponse_RateLimit_MINUTE, time.Minute},
	{typev3.RateLimitUnit_SECOND, pb.RateLimitResponse_RateLimit_SECOND, time.Second},
}

// requestLimit reads the request limit of a descriptor; nil is none.
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
	limit := sash.Every(int64(o.GetRequestsPerUnit()), time.Duration(times)*window)
	return &limit, nil
}
