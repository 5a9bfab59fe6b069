package decide

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// Counting counts requests as Envoy's rate limit service does, as far as clients can see. It charges every part, even
// one that is refused, and even more units than fit. Rules should count in fixed windows and charge refused requests:
// see config.Defaults. A Counting is safe for concurrent use.
type Counting struct {
	// Stop charges a refused request only to the parts that refuse it: STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT.
	Stop bool
	// Over remembers subjects over their limit, which are neither looked up nor charged: LOCAL_CACHE_SIZE_IN_BYTES. Nil is none.
	Over *OverLimit
}

const mostAtOnce = 64

func (d *Decider) count(ctx context.Context, req *Request, answers []Answer) error {
	over := false
	var parts []*Answer
	for i := range answers {
		a := &answers[i]
		if a.limits == nil || a.refund {
			over = over || a.BannedBy != nil
			continue
		}
		if a.limits.limiter == nil {
			if err := d.countNone(a); err != nil {
				return err
			}
		}
		if req.Counting.Over.holds(a) {
			over = true
		} else {
			parts = append(parts, a)
		}
	}
	if err := req.Counting.decide(ctx, parts, over); err != nil {
		return err
	}
	room := false
	for i := range answers {
		a := &answers[i]
		room = room || a.quota && !a.Refused
		if a.Limited() && a.refund {
			if err := a.giveBack(ctx, true); err != nil {
				return err
			}
		}
	}
	if room {
		spare(answers)
	}
	return nil
}

// decide charges parts. Over says that some other part is known to be over its limit.
func (c *Counting) decide(ctx context.Context, parts []*Answer, over bool) error {
	look := func(ctx context.Context, a *Answer) error { return a.countUnits(ctx, 0) }
	charge := func(ctx context.Context, a *Answer) error {
		err := a.chargeAll(ctx)
		c.Over.note(a)
		return err
	}
	if !c.Stop {
		return each(ctx, parts, charge)
	}
	if err := each(ctx, parts, look); err != nil {
		return err
	}
	refusing, charged := make(map[*Answer]bool), make(map[string]int64) // what the parts of a subject are charged
	for _, a := range parts {
		if over {
			c.Over.note(a)
			continue
		}
		room := remainingOf(a) - charged[a.Key]
		if a.Refused || remainingOf(a) < a.need {
			refusing[a], charged[a.Key], a.Fitted = true, charged[a.Key]+a.need, max(0, room)
		} else {
			a.Fitted = max(0, room+a.need) // as if it had been charged before
		}
	}
	switch {
	case over:
		return nil
	case len(refusing) == 0:
		return each(ctx, parts, charge)
	}
	parts = slices.DeleteFunc(parts, func(a *Answer) bool { _, full := charged[a.Key]; return !full })
	return each(ctx, parts, func(ctx context.Context, a *Answer) error {
		units := int64(0) // a part with room is charged nothing, but sees what earlier parts of its subject were charged
		if refusing[a] {
			units = a.need
		}
		err := a.countUnits(ctx, units)
		c.Over.note(a)
		return err
	})
}

func remainingOf(a *Answer) int64 {
	tightest, _ := a.Tightest()
	return tightest.Remaining
}

// chargeAll charges a part whether or not it has room. It first charges what fits, to learn how much that is.
func (a *Answer) chargeAll(ctx context.Context) error {
	rest := min(a.need, sash.MaxUnits)
	if rest == 0 || a.limits.none() {
		return a.countUnits(ctx, rest)
	}
	res, err := a.limits.plain.AllowUpTo(ctx, a.Key, rest)
	if err != nil {
		return err
	}
	a.Fitted = res.Charged
	if a.result(res); res.Charged == rest || res.Source == sash.FromPolicy {
		return nil
	}
	return a.countUnits(ctx, rest-res.Charged)
}

// countUnits charges units, refused or not. It charges at most as many as the limit has, since the limit is over in any case.
func (a *Answer) countUnits(ctx context.Context, units int64) error {
	policy := a.limits.limiter.Policy()
	req := driver.Request{Key: a.Key, Cost: min(units, policy.MostUnits()), Policy: policy}
	answer, err := driver.Decide(ctx, a.limits.store, req)
	if err != nil {
		return failure(ctx, err)
	}
	a.result(a.limits.limiter.Result(a.Key, answer))
	if !a.limits.none() {
		for i := range a.Limits {
			if l := &a.Limits[i]; !l.Refused && units > l.Limit.Units {
				l.Refused, l.RetryAfter = true, l.ReleaseAfter
			}
		}
		a.refusal()
		return nil
	}
	l := a.Limits[0]
	l.Refused = units > 0 || l.Remaining == 0
	l.Limit, l.Remaining, l.RetryAfter = a.limits.named[0], 0, l.ReleaseAfter
	l.Limit.Name = cmp.Or(l.Limit.Name, l.Limit.String())
	a.Limits = []sash.LimitResult{l}
	a.refusal()
	return nil
}

func (l *limits) none() bool { return l.named[0].Units == 0 }

// countNone counts under a limit of no units as under a limit of one unit, which is over as soon as anything is charged.
func (d *Decider) countNone(a *Answer) error {
	named := a.limits.named
	limit := named[0]
	limit.Units, limit.Name = 1, ""
	held, err := d.compileLimits(config.Place{}, &sash.Options{Algorithm: sash.FixedWindow, CountRefused: true}, []sash.Limit{limit}, failover.Modes{})
	if err != nil {
		return err
	}
	held.named = named
	a.limits = held
	return nil
}

// each calls do for every part: in order for parts of the same subject, and concurrently for different subjects.
func each(ctx context.Context, parts []*Answer, do func(context.Context, *Answer) error) error {
	if len(parts) == 1 {
		return do(ctx, parts[0])
	}
	byKey := make(map[string][]*Answer, len(parts))
	for _, a := range parts {
		byKey[a.Key] = append(byKey[a.Key], a)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(mostAtOnce)
	for _, same := range byKey {
		group.Go(func() error {
			for _, a := range same {
				if err := do(ctx, a); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// An OverLimit remembers subjects that are over their limit until their window ends, as the local cache of Envoy's
// service does. It is safe for concurrent use, and a nil one remembers nothing. NewOverLimit makes one.
type OverLimit struct {
	now  func() time.Time
	most int // bytes

	mu    sync.Mutex
	ends  map[windowOf]time.Time // guarded by mu
	stats OverLimitStats         // guarded by mu
	bytes int                    // guarded by mu
}

// windowOf names a window: units of different lengths count apart.
type windowOf struct {
	key    string
	window time.Duration
}

// overEntryBytes is the memory that an entry takes beside its key. Counting it makes the bound one of memory.
const overEntryBytes = 192

// OverLimitStats count what an OverLimit did, under the names of Envoy's service.
type OverLimitStats struct {
	Entries, Hits, Misses, Lookups, Expired, Evacuated, Overwrites uint64
}

// NewOverLimit returns an OverLimit that remembers up to this many bytes, and at least 512 KiB, as Envoy's service does.
func NewOverLimit(bytes int) *OverLimit {
	return &OverLimit{now: time.Now, most: max(bytes, 512<<10), ends: make(map[windowOf]time.Time)}
}

// Stats returns the counts.
func (o *OverLimit) Stats() OverLimitStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.Entries = uint64(len(o.ends))
	return s
}

// covers reports whether the OverLimit remembers the subject of a part. It does not under an override, which must hold at once.
func (o *OverLimit) covers(a *Answer) bool {
	return o != nil && !a.overridden && len(a.limits.named) == 1
}

func (o *OverLimit) holds(a *Answer) bool {
	if !o.covers(a) {
		return false
	}
	limit, now := a.limits.named[0], o.now()
	of := windowOf{a.Key, limit.Window}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats.Lookups++
	ends, known := o.ends[of]
	if known && !now.Before(ends) {
		o.drop(of)
		o.stats.Expired++
		known = false
	}
	if !known {
		o.stats.Misses++
		return false
	}
	o.stats.Hits++
	a.At, a.Source = now, sash.FromCache
	a.answerBy(limit, true, ends.Sub(now))
	return true
}

// note remembers a part that the store refused. At the bound, it drops any other entry to make room.
func (o *OverLimit) note(a *Answer) {
	if !o.covers(a) || !a.Refused || a.Source != sash.FromStore {
		return
	}
	of := windowOf{a.Key, a.limits.named[0].Window}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.ends[of]; known {
		o.drop(of)
		o.stats.Overwrites++
	}
	for other := range o.ends {
		if o.bytes+len(of.key)+overEntryBytes <= o.most {
			break
		}
		o.drop(other)
		o.stats.Evacuated++
	}
	o.ends[of] = o.now().Add(a.RefusedBy.RetryAfter)
	o.bytes += len(of.key) + overEntryBytes
}

// drop forgets an entry. The caller holds mu.
func (o *OverLimit) drop(of windowOf) {
	delete(o.ends, of)
	o.bytes -= len(of.key) + overEntryBytes
}
