package degrade

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	every    = 5 * time.Second // the longest time between two heart-beats; half of it is the shortest
	lives    = 3 * every       // for which an instance counts after one
	patience = time.Second     // for the answer to one
)

// A fleet is the number of instances that share the limits, counted by heart-beats, and at least the number that was
// given. An instance that starts while Redis is away knows no other.
//
// What counts is the greatest number of the last while. A Redis that has lost its state, or has just come back,
// knows of few instances until all have called, and a share that is too large would admit too much.
type fleet struct {
	floor int // 0 if no number was given
	beat  func(context.Context) (int, error)
	log   *slog.Logger
	count atomic.Int64
	seen  []sighting // of run
}

// A sighting is a number of instances, and when it was seen.
type sighting struct {
	at time.Time
	n  int
}

// instances returns the number, or 0 while it is not known.
func (f *fleet) instances() int { return max(f.floor, int(f.count.Load())) }

// run sends heart-beats until the context ends. Instances that start together do not stay together.
func (f *fleet) run(ctx context.Context) error {
	for {
		f.once(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every/2 + rand.N(every/2)):
		}
	}
}

func (f *fleet) once(ctx context.Context) {
	timed, cancel := context.WithTimeout(ctx, patience)
	n, err := f.beat(timed)
	cancel()
	switch {
	case err == nil:
		f.note(time.Now(), n)
	case ctx.Err() != nil:
	case f.instances() == 0:
		f.log.Warn("the number of instances is not known: rules with on_unavailable: local admit nothing until Redis has counted them; --instances sets the number until then", "error", err)
	default:
		f.log.Debug("a heart-beat failed", "error", err)
		f.note(time.Now(), int(f.count.Load())) // it holds for a while after the failure
	}
}

// note adds a sighting, and forgets those that are over.
func (f *fleet) note(now time.Time, n int) {
	greatest := n
	kept := []sighting{{now, n}}
	for _, s := range f.seen {
		if now.Sub(s.at) < lives {
			kept = append(kept, s)
			greatest = max(greatest, s.n)
		}
	}
	f.seen = kept
	f.count.Store(int64(greatest))
}
