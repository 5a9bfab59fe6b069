package degrade

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

// A Memory is the store of a service without Redis: a memstore.Store, with answers by failure modes for new subjects
// while it is full.
type Memory struct {
	*memstore.Store
	modes     *failover.Store // over full: it answers in the store's place
	occupancy *occupancy
	failed    func(error)
}

var (
	_ driver.MultiStore   = (*Memory)(nil)
	_ driver.Deduplicator = (*Memory)(nil)
)

// MemoryOptions for NewMemory. The zero value is the default.
type MemoryOptions struct {
	// Store is the size, and what happens when it is full.
	Store memstore.Options
	// OpenPerSecond is the most units let through in a second by on_unavailable: open. Zero is all.
	OpenPerSecond int64
	// Failed is called with memstore.ErrFull for every call that is not decided. It must not block. Nil is not called.
	Failed func(error)
	// Log gets warnings of a store that is nearly full, and full. Nil is slog.Default.
	Log *slog.Logger
}

// NewMemory returns an empty store.
func NewMemory(opts MemoryOptions) (*Memory, error) {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	m := &Memory{Store: memstore.New(&opts.Store), failed: opts.Failed}
	m.occupancy = newOccupancy(m.Store, "every subject", opts.Log)
	var err error
	m.modes, err = failover.New(full{}, &failover.Options{OpenPerSecond: opts.OpenPerSecond, Blip: never})
	return m, err
}

// full is a store without a place.
type full struct{}

// Decide implements [driver.Store].
func (full) Decide(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, memstore.ErrFull
}

// DecideAll implements [driver.MultiStore].
func (full) DecideAll(context.Context, []driver.Request) ([]driver.Answer, error) {
	return nil, memstore.ErrFull
}

// With returns the store with other failure modes. Mode local is closed: there is no other memory to decide in.
func (m *Memory) With(modes failover.Modes) (driver.Store, error) {
	with := *m
	modes.Rules = slices.Clone(modes.Rules)
	for i := range modes.Rules {
		if modes.Rules[i].Mode == failover.Local {
			modes.Rules[i].Mode = failover.Closed
		}
	}
	var err error
	with.modes, err = m.modes.With(modes)
	return &with, err
}

// Decide implements [driver.Store].
func (m *Memory) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	answer, err := m.Store.Decide(ctx, req)
	if err != nil {
		return m.answer(ctx, req, err)
	}
	return answer, nil
}

// DecideOnce implements [driver.Deduplicator].
func (m *Memory) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	answer, err := m.Store.DecideOnce(ctx, id, req)
	if err != nil {
		return m.answer(ctx, req, err)
	}
	return answer, nil
}

// DecideAll implements [driver.MultiStore].
func (m *Memory) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	answers, err := m.Store.DecideAll(ctx, reqs)
	if err == nil {
		return answers, nil
	}
	m.note(err)
	answers, other := m.modes.DecideAll(ctx, reqs)
	if other != nil {
		return nil, because(err, other)
	}
	for i := range answers {
		answers[i].Cause = err
	}
	return answers, nil
}

// answer answers a call that the store has no place for.
func (m *Memory) answer(ctx context.Context, req driver.Request, err error) (driver.Answer, error) {
	m.note(err)
	answer, other := m.modes.Decide(ctx, req)
	if other != nil {
		return driver.Answer{}, because(err, other)
	}
	answer.Cause = err
	return answer, nil
}

func (m *Memory) note(err error) {
	if m.failed != nil {
		m.failed(err)
	}
}

// because returns the error of a call that no mode lets through. Only a ceiling is another cause than the store's.
func because(err, of error) error {
	if errors.Is(of, failover.ErrCeiling) {
		err = errors.Join(err, failover.ErrCeiling)
	}
	return &sash.StoreError{Err: err}
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
	occupancy := m.Occupancy()
	r := Report{Health: MemoryHealth(), Memory: &occupancy}
	if r.Since = m.occupancy.look(); !r.Since.IsZero() {
		r.Status, r.Cause = "degraded", "full"
	}
	return r
}

// MemoryHealth is the health of a service whose store is its own memory, and has room.
func MemoryHealth() Health { return Health{Status: "ok", Store: "memory", Instances: 1} }
