package quota

import (
	"context"
	"log/slog"
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// A bucket is that of one Envoy. Only its stream uses it.
type bucket struct {
	id      *pb.BucketId
	entries []config.Entry
	config  *config.Config // in which entries have the order of a rule
	shared  *demand
	rate    float64 // requests a second, which are part of those of shared; its mutex guards it
	known   bool    // from reports; otherwise it is a guess

	since    time.Time // from when requests are counted; zero before the first report
	requests uint64
	used     time.Time // when a report last had requests

	grants []grant // in their order, of which a report may show units that were not spent
	ending int     // how many of them end when the next message has arrived
	open   int64   // units of all grants of which no request was reported
	past   spare   // the least of grants that are not in grants any more
	back   []grant // whose units go back
	owed   int64   // requests that Envoy admitted without a grant, and that are charged whether or not there is room

	due     time.Time // of the next push
	full    time.Time // until when the store has no room, as far as is known
	denied  time.Time // until when Envoy denies everything
	lease   time.Duration
	actions []*pb.RateLimitQuotaResponse_BucketAction
}

// A grant is units that Envoy may spend.
type grant struct {
	*decide.Reservation
	units int64
	worth int64     // what the charge is settled to, if units go back
	until time.Time // it is not spent afterwards
	spare
}

// A spare is about a grant and all later ones: how many of their charged units were not spent so far, and never will be, at least.
type spare struct{ left, ever int64 }

// report takes a report.
func (st *stream) report(b *bucket, usage *pb.RateLimitQuotaUsageReports_BucketQuotaUsage) {
	now, allowed, denied := st.heard, int64(min(usage.GetNumRequestsAllowed(), math.MaxInt32)), min(usage.GetNumRequestsDenied(), math.MaxInt32)
	if allowed > 0 || denied > 0 {
		b.used = now
	}
	if b.since.IsZero() {
		if usage.GetTimeElapsed().AsDuration() == 0 { // otherwise of an earlier stream, whose grants count as spent
			b.owed = allowed
		}
		b.since, b.due = now, now
		return
	}
	b.requests += uint64(allowed) + denied
	if took := now.Sub(b.since).Seconds(); took >= 1 {
		rate := float64(b.requests) / took
		if b.known { // a demand that falls is believed in steps
			rate = max(rate, (rate+b.rate)/2)
		}
		st.mu.Lock()
		b.turn(rate)
		st.mu.Unlock()
		b.known, b.since, b.requests = true, now, 0
	}
	b.refund(allowed, now)
	full := now.Before(b.full)
	if denied > 0 && !full || len(b.back) > 0 && full {
		b.due = now
	}
}

// turn sets the rate. The caller holds the mutex of shared.
func (b *bucket) turn(rate float64) {
	b.shared.rate += rate - b.rate
	b.rate = rate
}

// refund finds the units that were not spent of grants that have ended. Which grants the reported requests spent is not known: for
// each grant they may be of it and of later ones. So every window counts at least what is spent in it.
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

// each calls a function with every spare.
func (b *bucket) each(do func(*spare)) {
	do(&b.past)
	for i := range b.grants {
		do(&b.grants[i].spare)
	}
}

// grant notes units that the next message gives to Envoy.
func (b *bucket) grant(made *decide.Reservation, units int64, until time.Time) {
	b.grants = append(b.grants, grant{Reservation: made, units: units, until: until})
	b.open += units
	b.each(func(s *spare) { s.left += units })
}

// wants returns how many units a bucket needs for a time, and its part of what is left, by its part of the demand.
func (st *stream) wants(b *bucket, lasts time.Duration) (need, part float64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	d := b.shared
	if !b.known { // twice what the limit gives to each
		b.turn(2 * d.pace / float64(d.streams))
	}
	if b.rate == 0 {
		return 1, 1
	}
	expected, room := b.rate*lasts.Seconds(), max(d.rest, 1.25*d.pace*lasts.Seconds())
	spread := min(2, max(0.2, 2*(d.pace/max(d.rate, b.rate)-1))) // of the demand, for which less is asked where the limit has little besides
	return max(1, expected+spread*math.Sqrt(expected)), max(0.01, room*b.rate/max(d.rate, b.rate))
}

// renew decides the next assignment of a bucket. It may run beside those of other buckets.
func (st *stream) renew(b *bucket) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(st.ctx, st.Timeout)
	defer cancel()
	if cfg := st.Decider.Config(); cfg != b.config {
		b.config, b.entries = cfg, order(cfg, st.domain, b.entries)
	}
	ask := decide.Request{Domain: st.domain, Port: decide.GRPC, Lenient: true, UpTo: true, Parts: []decide.Part{{Entries: b.entries, Cost: 1}}}
	st.correct(ctx, b, ask)
	if began.Sub(b.used) > idle { // and reports will show what was not spent
		b.deny(began, time.Second)
		return
	}
	if b.lease == 0 {
		looked, err := st.Decider.Peek(ctx, ask)
		if err != nil {
			st.undecided(err)
			b.deny(began, time.Second)
		}
		if err != nil || !st.grants(b, &looked[0], began) {
			return
		}
		st.learn(b, &looked[0])
	}
	ttl := (b.lease - delivery).Truncate(time.Second)
	lasts := ttl - min(ttl/5, delivery/2) // until the next push
	need, part := st.wants(b, lasts)
	ask.Parts[0].Cost = int64(math.Ceil(min(need, part)))
	answer, made, err := st.Decider.Reserve(ctx, ask)
	switch {
	case err != nil:
		st.undecided(err)
		b.deny(began, time.Second)
	case !st.grants(b, &answer, began):
		if made != nil {
			b.back = append(b.back, grant{Reservation: made})
		}
	case made == nil:
		b.full = began.Add(min(max(answer.RefusedBy.RetryAfter, again), time.Second))
		b.deny(began, b.full.Sub(began))
	default:
		st.learn(b, &answer)
		b.assign(tokens(answer.Cost), (b.lease - delivery).Truncate(time.Second))
		b.grant(made, answer.Cost, began.Add(b.lease))
		switch got := float64(answer.Cost); {
		case part < 1 && part < need: // a unit now and then
			lasts = min(time.Duration(float64(lasts)/part), rarely)
		case got < need:
			spent := got + 1.5*math.Sqrt(got) // by then nearly always
			lasts = min(lasts, max(again, time.Duration(spent/b.rate*float64(time.Second))))
		}
		b.due, b.full = began.Add(lasts), time.Time{}
	}
}

// undecided logs why nothing was decided, unless the stream has ended.
func (st *stream) undecided(err error) {
	if st.ctx.Err() == nil {
		st.log.Log(slog.LevelError, "no decision: Envoy denies", "error", err, "domain", st.domain)
	}
}

// correct settles what grants were worth, and charges what Envoy admitted without one. After an error the store counts as before.
func (st *stream) correct(ctx context.Context, b *bucket, ask decide.Request) {
	for _, g := range b.back {
		_ = st.Decider.Settle(ctx, g.Reservation, g.worth)
	}
	if b.back = nil; b.owed > 0 {
		ask.UpTo, ask.Parts = false, []decide.Part{{Entries: ask.Parts[0].Entries, Cost: b.owed, Always: true}}
		if _, err := st.Decider.Decide(ctx, ask); err == nil {
			b.owed = 0
		}
	}
}

// grants reports whether a rule limits a bucket by units that can be granted. Otherwise it sets the assignment.
func (st *stream) grants(b *bucket, a *decide.Answer, now time.Time) bool {
	switch {
	case a.BannedBy != nil:
		b.deny(now, time.Second)
	case !a.Limited() || a.Soft():
		b.assign(blanket(true), standing)
		b.due = now.Add(standing / 2)
	case a.Rule != nil && a.Rule.Refuses:
		b.deny(now, standing/2)
	case a.Lease() < MinLease:
		st.log.Log(slog.LevelError, "Envoy denies requests, since units of the rule cannot be granted: give it a lease of at least 2s",
			"domain", st.domain, "rule", a.Metric)
		b.deny(now, standing/2)
	default:
		return true
	}
	b.lease = 0
	return false
}

// learn notes what an answer says of the limits.
func (st *stream) learn(b *bucket, a *decide.Answer) {
	tightest, known := a.Tightest()
	if !known {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	b.lease = a.Lease()
	b.shared.rest, b.shared.pace = float64(tightest.Remaining), math.Inf(1)
	for _, l := range a.Limits {
		b.shared.pace = min(b.shared.pace, float64(l.Limit.Units)/(l.Limit.Window+a.Lease()).Seconds())
	}
}

// deny denies every request, until a push after a while.
func (b *bucket) deny(now time.Time, after time.Duration) {
	if b.due = now.Add(after); b.denied.Sub(now) < standing/2 {
		b.assign(blanket(false), standing)
		b.denied = now.Add(standing)
	}
}

// assign sets the actions of the next message. Envoy keeps the level of a bucket of tokens, in proportion, when it gets another one,
// and so denies everything in between.
func (b *bucket) assign(strategy *typepb.RateLimitStrategy, ttl time.Duration) {
	b.actions, b.denied, b.ending = nil, time.Time{}, len(b.grants)
	if strategy.GetTokenBucket() != nil {
		b.actions = append(b.actions, assign(b.id, blanket(false), ttl))
	}
	b.actions = append(b.actions, assign(b.id, strategy, ttl))
}

// end ends the assignment that Envoy has, by a message that is sent now.
func (b *bucket) end(now time.Time) {
	for i := range b.grants[:b.ending] {
		if over := now.Add(delivery); over.Before(b.grants[i].until) {
			b.grants[i].until = over
		}
	}
	b.ending = 0
}

func assign(id *pb.BucketId, strategy *typepb.RateLimitStrategy, ttl time.Duration) *pb.RateLimitQuotaResponse_BucketAction {
	return &pb.RateLimitQuotaResponse_BucketAction{
		BucketId: id,
		BucketAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
			QuotaAssignmentAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
				AssignmentTimeToLive: durationpb.New(ttl), RateLimitStrategy: strategy,
			},
		},
	}
}

func blanket(allow bool) *typepb.RateLimitStrategy {
	rule := typepb.RateLimitStrategy_DENY_ALL
	if allow {
		rule = typepb.RateLimitStrategy_ALLOW_ALL
	}
	return &typepb.RateLimitStrategy{Strategy: &typepb.RateLimitStrategy_BlanketRule_{BlanketRule: rule}}
}

// tokens returns the strategy that admits so many requests, and no more.
func tokens(n int64) *typepb.RateLimitStrategy {
	return &typepb.RateLimitStrategy{Strategy: &typepb.RateLimitStrategy_TokenBucket{TokenBucket: &typepb.TokenBucket{
		MaxTokens: uint32(min(n, math.MaxUint32)), TokensPerFill: wrapperspb.UInt32(0), FillInterval: durationpb.New(time.Hour),
	}}}
}
