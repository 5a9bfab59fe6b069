package degrade

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/throttle"
)

// A Memory is the store of a service without Redis. New subjects for which it has no place are not decided, whatever
// on_unavailable says: nothing is away that could come back.
type Memory struct {
	*memstore.Store
	occupancy *occupancy
}

// NewMemory returns an empty store. A nil log is slog.Default.
func NewMemory(opts memstore.Options, log *slog.Logger) *Memory {
	store := memstore.New(&opts)
	return &Memory{store, newOccupancy(store, "every subject", cmp.Or(log, slog.Default()))}
}

// Place returns the store of a place: see decide.Stores. In one process's memory a lease saves nothing, so every call is
// decided.
func (m *Memory) Place(p config.Place) (driver.Store, error) {
	if p.Global {
		return nil, config.ErrNoHome
	}
	return m.Store, nil
}

// Run watches how full the store is, until the context ends. It returns nil.
func (m *Memory) Run(ctx context.Context) error {
	m.occupancy.run(ctx)
	return nil
}

// Health returns the state now: degraded while the store is full.
func (m *Memory) Health() Health { return m.Report().Health }

// Report returns the state now.
func (m *Memory) Report() Report {
	occupancy := m.Store.Stats()
	r := Report{Health: MemoryHealth(), Memory: &occupancy}
	if r.Since = m.occupancy.look(); !r.Since.IsZero() {
		r.Status, r.Cause = "degraded", "full"
	}
	return r
}

// MemoryHealth is the health of a service whose store is its own memory, and has room.
func MemoryHealth() Health { return Health{Status: "ok", Store: "memory", Instances: 1} }

const (
	// fullFor is how long a store counts as full after it last evicted a subject or took no new one.
	fullFor = time.Minute
	// nearlyFull is the share of bytes in use from which the log warns, once until it falls below rearm.
	nearlyFull, rearm = 0.8, 0.7

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
		o.full.Log(slog.LevelWarn, "the store in memory is full: raise --memory-max-bytes, or find who brings so many subjects, IDs or bookings",
			"holds", o.holds, "subjects", is.Keys, "bytes", is.Bytes, "max_bytes", is.MaxBytes, "evicted", is.Evicted, "turned_away", is.TurnedAway)
	}
	o.seen = is
	switch used := float64(is.Bytes) / float64(is.MaxBytes); {
	case used >= nearlyFull && !o.warned:
		o.warned = true
		o.log.Warn("the store in memory is nearly full", "holds", o.holds, "subjects", is.Keys, "bytes", is.Bytes, "max_bytes", is.MaxBytes)
	case used < rearm:
		o.warned = false
	}
	if o.at.IsZero() || now.Sub(o.at) > fullFor {
		return time.Time{}
	}
	return o.since
}
