package degrade

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/throttle"
)

const (
	// fullFor is how long a store counts as full after it last evicted a subject or took no new one.
	fullFor = time.Minute
	// nearlyFull is the share of places in use, in percent, from which the log warns, once until it falls below rearm.
	nearlyFull, rearm = 80, 70

	occupancyEvery = time.Second
)

// An occupancy watches how full a store in memory is, for the log and for health.
type occupancy struct {
	store *memstore.Store
	holds string // what the store holds, for the log
	log   *slog.Logger
	full  throttle.Log

	mu     sync.Mutex
	seen   memstore.Stats // guarded by mu: at the last look
	at     time.Time      // guarded by mu: when it was last full; zero is never
	since  time.Time      // guarded by mu: from when on it has been full
	warned bool           // guarded by mu
}

func newOccupancy(store *memstore.Store, holds string, log *slog.Logger) *occupancy {
	return &occupancy{store: store, holds: holds, log: log, full: throttle.Log{To: log, Every: fullFor}}
}

// run looks every second until the context ends.
func (o *occupancy) run(ctx context.Context) {
	ticker := time.NewTicker(occupancyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			o.look()
		}
	}
}

// look logs what has changed, and returns since when the store has been full; the zero time if it is not.
func (o *occupancy) look() (since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, is := time.Now(), o.store.Stats()
	if is.Evicted != o.seen.Evicted || is.TurnedAway != o.seen.TurnedAway {
		if o.at.IsZero() || now.Sub(o.at) > fullFor {
			o.since = now
		}
		o.at = now
		o.full.Log(slog.LevelWarn, "the store in memory is full: raise --memory-max-subjects, or find who brings so many subjects",
			"holds", o.holds, "subjects", is.Keys, "max_subjects", is.MaxKeys, "evicted", is.Evicted, "turned_away", is.TurnedAway)
	}
	o.seen = is
	switch used := 100 * is.Keys; {
	case used >= nearlyFull*is.MaxKeys && !o.warned:
		o.warned = true
		o.log.Warn("the store in memory is nearly full", "holds", o.holds, "subjects", is.Keys, "max_subjects", is.MaxKeys)
	case used < rearm*is.MaxKeys:
		o.warned = false
	}
	if o.at.IsZero() || now.Sub(o.at) > fullFor {
		return time.Time{}
	}
	return o.since
}
