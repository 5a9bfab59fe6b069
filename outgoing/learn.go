package outgoing

import (
	"slices"
	"sync"
	"time"

	"example.com/sash"
)

// ceilings are limits that an API has shown to be lower than configured, because it has counted units that
// the store has not. A ceiling falls at once and rises by the limit's units per window, from where it
// fell; when it reaches the limit it is gone.
type ceilings struct {
	mu     sync.Mutex
	fallen *memory[ceilingID, ceiling] // guarded by mu
	flying map[string]*flight          // guarded by mu
}

// A ceilingID names a limit of a bucket, whatever units a call's share leaves of it.
type ceilingID struct {
	key    string
	window time.Duration
	period sash.Period
}

type ceiling struct {
	units int64
	at    time.Time
	span  time.Duration
}

// A flight counts what this process has charged to a bucket while calls were being decided or answered.
type flight struct {
	calls   int
	charged int64
}

func newCeilings() *ceilings {
	return &ceilings{fallen: newMemory[ceilingID](ceiling.risen), flying: make(map[string]*flight)}
}

func idOf(key string, l sash.Limit) ceilingID { return ceilingID{key, l.Window, l.Period} }

// span is the length of a limit's window, or close to it for a calendar limit.
func span(l sash.Limit) time.Duration {
	switch l.Period {
	case sash.CalendarHour:
		return time.Hour
	case sash.CalendarDay:
		return 24 * time.Hour
	case sash.CalendarMonth:
		return 31 * 24 * time.Hour
	}
	return l.Window
}

// risen tells whether a ceiling is gone.
func (c ceiling) risen(now time.Time) bool { return now.Sub(c.at) >= c.span }

func (c ceiling) now(limit sash.Limit, now time.Time) int64 {
	risen := float64(limit.Units) * float64(now.Sub(c.at)) / float64(c.span)
	return min(c.units+int64(min(max(risen, 0), sash.MaxUnits)), limit.Units)
}

// apply returns a bucket's limits as far as they are known to be lower, less what the call's class leaves
// to others. When a ceiling has no room for the cost it returns the time until it has.
func (c *ceilings) apply(s sash.Subject, percent int, now time.Time) (limits []sash.Limit, wait time.Duration) {
	limits = make([]sash.Limit, len(s.Limits))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, whole := range s.Limits {
		l := whole
		l.Units = share(whole.Units, percent)
		if l.Name == "" {
			l.Name = whole.String() // the name stays that of the limit as it was configured
		}
		fallen, lower := c.fallen.get(idOf(s.Key, whole))
		if lower && s.Cost <= l.Units { // a cost that can never fit is left to the limiter to tell
			l.Units = share(fallen.now(whole, now), percent)
			if missing := s.Cost - l.Units; missing > 0 {
				wait = max(wait, risesBy(missing, whole, percent))
			}
		}
		limits[i] = l
	}
	return limits, wait
}

// room returns how long a call that was refused has to wait: for each limit that refused it until charges
// have left, or until its ceiling has risen by what is missing, whichever is first.
// Results name a bucket with the prefix.
func (c *ceilings) room(call Call, subjects []sash.Subject, res sash.Result, prefix string) (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	refused := res.Limits()
	for i, s := range subjects {
		if len(refused) < len(s.Limits) || refused[0].Key != prefix+s.Key {
			continue // a store that charges one by one tells only of the subject that refused
		}
		for j, whole := range s.Limits {
			l := refused[j]
			if !l.Refused {
				continue
			}
			until := l.RetryAfter
			if _, lower := c.fallen.get(idOf(s.Key, whole)); lower {
				until = min(until, risesBy(s.Cost-l.Remaining, whole, call.percent(i)))
			}
			wait = max(wait, until)
		}
		refused = refused[len(s.Limits):]
	}
	return wait
}

// risesBy returns how long a ceiling takes to rise by some units.
func risesBy(units int64, whole sash.Limit, percent int) time.Duration {
	perSpan := float64(whole.Units*int64(percent)) / 100
	return max(time.Duration(float64(units)*float64(span(whole))/perSpan), time.Millisecond)
}

// leaving notes that a call is about to be decided, and returns what this process has charged to its own bucket,
// the first, so far.
func (c *ceilings) leaving(subjects []sash.Subject) (before int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range subjects {
		f := c.flying[s.Key]
		if f == nil {
			f = new(flight)
			c.flying[s.Key] = f
		}
		f.calls++
	}
	return c.flying[subjects[0].Key].charged
}

// charged notes that a call was admitted.
func (c *ceilings) charged(subjects []sash.Subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range subjects {
		c.flying[s.Key].charged += s.Cost
	}
}

// landed ends what leaving began. For a call that was admitted it returns what was charged to its own bucket by
// others of this process since then: the API may have counted those or not.
func (c *ceilings) landed(subjects []sash.Subject, before int64) (meanwhile int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	meanwhile = c.flying[subjects[0].Key].charged - before - subjects[0].Cost
	for _, s := range subjects {
		f := c.flying[s.Key]
		if f.calls--; f.calls == 0 {
			delete(c.flying, s.Key)
		}
	}
	return meanwhile
}

// learn compares what the API says is left with what the store has counted, when it admitted the call.
func (c *ceilings) learn(call Call, counted []sash.LimitResult, meanwhile int64, quotas []Quota, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range call.Limits {
		for _, q := range quotas {
			if !q.HasRemaining || !describes(q, l, call) {
				continue
			}
			left := q.Remaining
			if q.Unit == unitPercent {
				left = share(l.Units, int(min(left, 100)))
			}
			used := counted[i].Limit.Units - counted[i].Remaining
			units := min(used+meanwhile+left, l.Units)
			if q.Limit > 0 && q.Window == span(l) && q.Unit != unitPercent {
				units = min(units, q.Limit)
			}
			c.lower(idOf(call.Key, l), l, units, now)
		}
	}
}

func (c *ceilings) lower(id ceilingID, l sash.Limit, units int64, now time.Time) {
	known := l.Units
	if fallen, ok := c.fallen.get(id); ok {
		known = fallen.now(l, now)
	}
	if units >= known {
		return
	}
	c.fallen.set(id, ceiling{units: units, at: now, span: span(l)}, now)
}

// describes tells whether a quota is the one that a limit was configured for: by its window, or by its
// units, or because there is no other. Percentages are of the call's longest limit.
func describes(q Quota, l sash.Limit, call Call) bool {
	if q.Unit == unitPercent {
		return !slices.ContainsFunc(call.Limits, func(other sash.Limit) bool { return span(other) > span(l) })
	}
	if q.Unit != call.Unit {
		return false
	}
	if q.Window > 0 {
		return q.Window == span(l)
	}
	if len(call.Limits) == 1 {
		return true
	}
	return q.Limit == l.Units
}
