package quota

import (
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/sash/service/internal/decide"
)

type grant struct {
	*decide.Reservation
	units int64
	worth int64     // the units to settle the charge to, if units go back
	until time.Time // Envoy does not spend it afterwards
	spare
}

// A spare counts the charged units of a grant and all later ones that were not spent so far, and at least how many never will be.
type spare struct{ left, ever int64 }

func (b *bucket) grant(made *decide.Reservation, units int64, until time.Time) {
	b.grants = append(b.grants, grant{Reservation: made, units: units, until: until})
	b.open += units
	b.each(func(s *spare) { s.left += units })
}

// refund finds the unspent units of grants that have ended. It does not know which grants the reported requests spent, so for each
// grant it assumes that they may have spent that grant and later ones. Every window thus counts at least what is spent in it.
func (b *bucket) refund(allowed int64, now time.Time) {
	if b.open -= allowed; b.open < 0 {
		b.owed, b.open = b.owed-b.open, 0
	}
	live := int64(0) // units that may still be spent
	for _, g := range b.grants {
		if g.until.After(now) {
			live += g.units
		}
	}
	b.each(func(s *spare) {
		s.left = max(s.left-allowed, s.ever)
		s.ever = max(s.ever, s.left-live)
	})
	for len(b.grants) > 0 && !b.grants[0].until.After(now) {
		g := &b.grants[0]
		least := spare{min(b.past.left, g.left), min(b.past.ever, g.ever)}
		unspent := min(least.ever, g.units)
		if unspent < g.units && now.Sub(g.until) < patience {
			return // the next report may show more
		}
		if b.past = (spare{least.left - unspent, least.ever - unspent}); unspent > 0 {
			g.worth = g.units - unspent
			b.open -= unspent
			b.back = append(b.back, *g)
		}
		b.grants = b.grants[1:]
	}
}

func (b *bucket) each(do func(*spare)) {
	do(&b.past)
	for i := range b.grants {
		do(&b.grants[i].spare)
	}
}

func (b *bucket) deny(now time.Time, after time.Duration) {
	if b.due = now.Add(after); b.denied.Sub(now) < standing/2 {
		b.assign(blanket(false), standing)
		b.denied = now.Add(standing)
	}
}

// assign sets the actions of the next message. Envoy keeps the level of a token bucket, so assign denies everything between two of them.
func (b *bucket) assign(strategy *typepb.RateLimitStrategy, ttl time.Duration) {
	b.actions, b.denied, b.ending = nil, time.Time{}, len(b.grants)
	if strategy.GetTokenBucket() != nil {
		b.actions = append(b.actions, assign(b.id, blanket(false), ttl))
	}
	b.actions = append(b.actions, assign(b.id, strategy, ttl))
}

// end ends the assignment that Envoy has by a message that is sent now.
func (b *bucket) end(now time.Time) {
	for i := range b.grants[:b.ending] {
		if over := now.Add(delivery); over.Before(b.grants[i].until) {
			b.grants[i].until = over
		}
	}
	b.ending = 0
}

func assign(id *pb.BucketId, strategy *typepb.RateLimitStrategy, ttl time.Duration) *pb.RateLimitQuotaResponse_BucketAction {
	of := &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{AssignmentTimeToLive: durationpb.New(ttl), RateLimitStrategy: strategy}
	return &pb.RateLimitQuotaResponse_BucketAction{
		BucketId: id, BucketAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{QuotaAssignmentAction: of},
	}
}

var abandonment = &pb.RateLimitQuotaResponse_BucketAction_AbandonAction_{AbandonAction: &pb.RateLimitQuotaResponse_BucketAction_AbandonAction{}}

func abandon(id *pb.BucketId) *pb.RateLimitQuotaResponse_BucketAction {
	return &pb.RateLimitQuotaResponse_BucketAction{BucketId: id, BucketAction: abandonment}
}

func blanket(allow bool) *typepb.RateLimitStrategy {
	rule := typepb.RateLimitStrategy_DENY_ALL
	if allow {
		rule = typepb.RateLimitStrategy_ALLOW_ALL
	}
	return &typepb.RateLimitStrategy{Strategy: &typepb.RateLimitStrategy_BlanketRule_{BlanketRule: rule}}
}

func tokens(n int64) *typepb.RateLimitStrategy {
	return &typepb.RateLimitStrategy{Strategy: &typepb.RateLimitStrategy_TokenBucket{TokenBucket: &typepb.TokenBucket{
		MaxTokens: uint32(min(n, math.MaxUint32)), TokensPerFill: wrapperspb.UInt32(0), FillInterval: durationpb.New(time.Hour),
	}}}
}
