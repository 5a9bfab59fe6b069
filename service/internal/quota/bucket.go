package quota

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// A bucket is the state of one bucket of an Envoy. Only its stream uses it.
type bucket struct {
	id         *pb.BucketId
	entries    []config.Entry
	config     *config.Config // the configuration by whose rules the entries are ordered
	shared     *demand
	tally      *decide.Tally // of the demand of all instances
	rate       float64       // requests a second, a part of the rate of shared, whose mutex guards it
	known      bool          // the rate is from reports; otherwise it is a guess
	unreported int64         // requests that are not in tally yet
	short      bool          // its part of the units left was less than it needed

	since    time.Time // from when requests are counted; zero before the first report
	requests uint64
	used     time.Time // when a report last had requests

	grants []grant // in order; a report may still show unspent units of them
	ending int     // how many of them end when the next message has arrived
	open   int64   // units of all grants for which no request was reported
	past   spare   // the least spare of grants that have left the list
	back   []grant // their units go back
	owed   int64   // requests that Envoy admitted without a grant; they are charged whether or not there is room

	due     time.Time // of the next push
	waits   time.Time // until then it asks for nothing
	denied  time.Time // until then Envoy denies everything
	lease   time.Duration
	actions []*pb.RateLimitQuotaResponse_BucketAction
}

func (st *stream) report(b *bucket, usage *pb.RateLimitQuotaUsageReports_BucketQuotaUsage, came time.Time) {
	now, allowed, denied := st.heard, int64(min(usage.GetNumRequestsAllowed(), math.MaxInt32)), min(usage.GetNumRequestsDenied(), math.MaxInt32)
	if allowed > 0 || denied > 0 {
		b.used = now
	}
	if b.since.IsZero() {
		if usage.GetTimeElapsed().AsDuration() == 0 { // otherwise from an earlier stream, whose grants count as spent
			b.owed = allowed
		}
		b.since, b.due = now, now
		return
	}
	b.requests += uint64(allowed) + denied
	risen := st.measure(b, now)
	b.refund(allowed, came)
	if risen || denied > 0 && !b.short {
		b.waits = now
	}
	if !b.waits.After(now) || b.unreported > 0 || len(b.back) > 0 {
		b.due = now
	}
}

// renew decides the next assignment of a bucket. It may run concurrently for several buckets.
func (st *stream) renew(b *bucket) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(st.ctx, st.Timeout)
	defer cancel()
	if cfg := st.Decider.Config(); cfg != b.config {
		b.config, b.entries, b.lease = cfg, order(cfg, st.domain, b.entries), 0
	}
	ask := decide.Request{Domain: st.domain, Port: decide.GRPC, Lenient: true, UpTo: true, Parts: []decide.Part{{Entries: b.entries, Cost: 1}}}
	st.correct(ctx, b, ask)
	if began.Sub(b.used) > idle { // reports will show what was not spent
		b.deny(began, time.Second)
		return
	}
	if b.lease == 0 && !st.look(ctx, b, ask, began) {
		return
	}
	st.share(ctx, b)
	if began.Before(b.waits) { // the units that it gave back are for all
		b.due = b.waits
		return
	}
	st.ask(ctx, b, ask, began)
}

// look learns the limits of a bucket, and reports whether its units can be granted.
func (st *stream) look(ctx context.Context, b *bucket, ask decide.Request, now time.Time) bool {
	looked, err := st.Decider.Peek(ctx, ask)
	if err == nil {
		if !st.grants(b, &looked[0], now) {
			return false
		}
		st.learn(b, &looked[0])
		b.tally, err = st.Decider.Tally(&looked[0])
	}
	if err != nil {
		b.lease = 0 // so that the bucket looks again
		st.undecided(b, now, err)
	}
	return err == nil
}

func (st *stream) ask(ctx context.Context, b *bucket, ask decide.Request, now time.Time) {
	ttl := (b.lease - delivery).Truncate(time.Second)
	lasts := ttl - min(ttl/5, delivery/2) // until the next push
	need, part := st.wants(b, lasts)
	b.short = part < need
	pause := func(units float64) time.Duration { // the time in which its part of the room grows by these units
		return min(max(again, time.Duration(float64(lasts)*units/part)), max(rarely, lasts))
	}
	ask.Parts[0].Cost = int64(math.Ceil(min(need, part)))
	answer, made, err := st.Decider.Reserve(ctx, ask)
	switch {
	case err != nil:
		st.undecided(b, now, err)
	case !st.grants(b, &answer, now):
		if made != nil {
			b.back = append(b.back, grant{Reservation: made})
		}
	case made == nil:
		st.learn(b, &answer)
		b.deny(now, max(pause(1), min(answer.RefusedBy.RetryAfter, time.Second)))
		b.waits, b.short = b.due, true
	default:
		st.learn(b, &answer)
		b.assign(tokens(answer.Cost), ttl)
		b.grant(made, answer.Cost, now.Add(b.lease))
		switch got := float64(answer.Cost); {
		case b.short:
			lasts = pause(got)
		case got < need:
			spent := got + 1.5*math.Sqrt(got) // the requests by then, nearly always
			lasts = min(lasts, max(again, time.Duration(spent/b.rate*float64(time.Second))))
		}
		b.due, b.waits = now.Add(lasts), now.Add(lasts)
	}
}

func (st *stream) undecided(b *bucket, now time.Time, err error) {
	b.deny(now, time.Second)
	if st.ctx.Err() == nil {
		st.log.Log(slog.LevelError, "no decision: Envoy denies", "error", err, "domain", st.domain)
	}
}

// correct settles grants to the units they were worth, and charges what Envoy admitted without one. After an error the charges stay.
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

// grants reports whether a rule limits a bucket and its units can be granted. If not, it sets the assignment.
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
		b.lease = a.Lease()
		return true
	}
	b.lease = 0
	return false
}

// entriesOf returns the entries of a bucket, sorted by key, and the bytes of their texts.
func entriesOf(id *pb.BucketId) (entries []config.Entry, size int) {
	for _, key := range slices.Sorted(maps.Keys(id.GetBucket())) {
		value := id.GetBucket()[key]
		entries, size = append(entries, config.Entry{Key: key, Value: value}), size+len(key)+len(value)
	}
	return entries, size
}

// order sorts the entries of a bucket, which Envoy sends unordered, like the first rule with their keys, if there is one.
func order(cfg *config.Config, domain string, entries []config.Entry) []config.Entry {
	for _, rule := range cfg.Rules() {
		var ordered []config.Entry
		for _, at := range rule.Path {
			if i := slices.IndexFunc(entries, func(e config.Entry) bool { return e.Key == at.Key }); i >= 0 {
				ordered = append(ordered, entries[i])
			}
		}
		if len(ordered) != len(entries) {
			continue
		}
		if found, err := cfg.Find(domain, ordered); err == nil && found.Rule == rule {
			return ordered
		}
	}
	return entries
}
