package decide

import (
	"container/list"
	"sync"
	"time"

	"example.com/sash"
)

// An OverLimit remembers subjects that are over their limit until their window ends: the local cache of Envoy's service.
// It is safe for concurrent use, and a nil one remembers nothing. Make it with NewOverLimit.
type OverLimit struct {
	now  func() time.Time
	most int // bytes

	mu    sync.Mutex
	of    map[windowOf]*list.Element // guarded by mu
	order list.List                  // guarded by mu: of overEntry, the oldest first
	stats OverLimitStats             // guarded by mu
	bytes int                        // guarded by mu
}

// windowOf names a window: units of different lengths count apart.
type windowOf struct {
	key    string
	window time.Duration
}

type overEntry struct {
	windowOf
	ends time.Time
}

// overEntryBytes is what an entry takes in memory beside its key, so that the bound is one of memory.
const overEntryBytes = 192

// OverLimitStats count what an OverLimit did, under the names of Envoy's service.
type OverLimitStats struct {
	Entries, Hits, Misses, Lookups, Expired, Evacuated, Overwrites uint64
}

// NewOverLimit returns one that remembers up to a number of bytes, and at least 512 KiB as the one of Envoy's service.
func NewOverLimit(bytes int) *OverLimit {
	return &OverLimit{now: time.Now, most: max(bytes, 512<<10), of: make(map[windowOf]*list.Element)}
}

// Stats returns the counts.
func (o *OverLimit) Stats() OverLimitStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.Entries = uint64(o.order.Len())
	return s
}

// covers reports whether subjects of a part are remembered: not under an override, which holds at once.
func (o *OverLimit) covers(a *Answer) bool {
	return o != nil && !a.overridden && len(a.limits.named) == 1
}

// holds refuses a part whose subject is over its limit.
func (o *OverLimit) holds(a *Answer) bool {
	if !o.covers(a) {
		return false
	}
	limit, now := a.limits.named[0], o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats.Lookups++
	place := o.of[windowOf{a.Key, limit.Window}]
	if place != nil && !now.Before(place.Value.(overEntry).ends) {
		o.drop(place)
		o.stats.Expired++
		place = nil
	}
	if place == nil {
		o.stats.Misses++
		return false
	}
	o.stats.Hits++
	left := place.Value.(overEntry).ends.Sub(now)
	if limit.Name == "" {
		limit.Name = limit.String()
	}
	a.Limits = []sash.LimitResult{{Key: a.Key, Limit: limit, Refused: true, RetryAfter: left, ReleaseAfter: left, ResetAfter: left}}
	a.At, a.Source = now, sash.FromCache
	a.refusal()
	return true
}

// note remembers a part that the store refused.
func (o *OverLimit) note(a *Answer) {
	if !o.covers(a) || !a.Refused || a.Source != sash.FromStore {
		return
	}
	now := o.now()
	of := windowOf{a.Key, a.limits.named[0].Window}
	o.mu.Lock()
	defer o.mu.Unlock()
	if place := o.of[of]; place != nil {
		o.drop(place)
		o.stats.Overwrites++
	}
	for o.bytes+len(of.key)+overEntryBytes > o.most && o.order.Len() > 0 {
		o.drop(o.order.Front())
		o.stats.Evacuated++
	}
	o.of[of] = o.order.PushBack(overEntry{of, now.Add(a.RefusedBy.RetryAfter)})
	o.bytes += len(of.key) + overEntryBytes
}

// drop forgets an entry. The caller holds mu.
func (o *OverLimit) drop(place *list.Element) {
	e := o.order.Remove(place).(overEntry)
	delete(o.of, e.windowOf)
	o.bytes -= len(e.key) + overEntryBytes
}
