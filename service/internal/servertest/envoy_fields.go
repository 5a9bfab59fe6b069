package servertest

import (
	"fmt"
	"net/http"
	"strconv"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

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
