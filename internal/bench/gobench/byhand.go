package gobench

import (
	"sync"
	"time"

	"example.com/sash"
)

// A sliceLog is the exact sliding log as services write it: one mutex and a map of slices of times.
type sliceLog struct {
	mu     sync.Mutex
	log    map[string][]time.Time // guarded by mu
	units  int
	window time.Duration
}

func openSliceLog(limits ...sash.Limit) limiter {
	units, window := only(limits)
	l := &sliceLog{log: map[string][]time.Time{}, units: units, window: window}
	return limiter{allow: l.allow}
}

func (l *sliceLog) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	log := l.log[key]
	cut := now.Add(-l.window)
	gone := 0
	for gone < len(log) && !log[gone].After(cut) {
		gone++
	}
	log = log[gone:]
	allowed := len(log) < l.units
	if allowed {
		log = append(log, now)
	}
	l.log[key] = log
	return allowed
}

// A ringLog does the least work of an exact limiter of one unit per call: it has a ring of as many times as there
// are units, allocated at once, and compares the oldest. It reports neither the units left nor when to retry, has
// one limit and one cost, and never forgets a key.
type ringLog struct {
	rings  sync.Map // key to *ring
	units  int
	window int64 // nanoseconds
	start  time.Time
}

type ring struct {
	mu    sync.Mutex
	at    []int64 // guarded by mu; nanoseconds since start, 0 if unused
	older int     // guarded by mu; index of the oldest
}

func openRingLog(limits ...sash.Limit) limiter {
	units, window := only(limits)
	l := &ringLog{units: units, window: int64(window), start: time.Now().Add(-time.Second)}
	return limiter{allow: l.allow}
}

func (l *ringLog) allow(key string) bool {
	v, ok := l.rings.Load(key)
	if !ok {
		v, _ = l.rings.LoadOrStore(key, &ring{at: make([]int64, l.units)})
	}
	r := v.(*ring)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := int64(time.Since(l.start))
	if oldest := r.at[r.older]; oldest != 0 && oldest > now-l.window {
		return false
	}
	r.at[r.older] = now
	if r.older++; r.older == len(r.at) {
		r.older = 0
	}
	return true
}
