// Package outside is a store as somebody writes it who has only the public packages of Sash.
package outside

import (
	"context"
	"sync"
	"time"

	"example.com/sash/driver"
)

// A Store keeps every charge of the sliding log in a slice. It charges, and has no power besides.
type Store struct {
	now func() time.Time

	mu       sync.Mutex
	subjects map[string][]charge // guarded by mu
}

type charge struct{ at, units int64 }

// New returns an empty store with a clock.
func New(now func() time.Time) *Store {
	return &Store{now: now, subjects: make(map[string][]charge)}
}

// Powers implements driver.Store.
func (s *Store) Powers() driver.Powers { return 0 }

// Do implements driver.Store.
func (s *Store) Do(ctx context.Context, b *driver.Batch) error {
	return driver.OneByOne(ctx, b, s.charge)
}

func (s *Store) charge(_ context.Context, op *driver.Op) error {
	if op.Kind != driver.Charge || op.Policy.Algorithm != driver.SlidingLog {
		return driver.ErrUnsupported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().UnixMicro()
	charges := s.subjects[op.Key]
	for i := range charges { // the clock went back: what is later than now was charged now
		charges[i].at = min(charges[i].at, now)
	}
	refusals, statuses := look(charges, now, op.Cost, op.Policy.Limits)
	if op.Cost > 0 && (refusals == 0 || op.Policy.CountRefused) {
		charges = append(charges, charge{now, op.Cost})
		s.subjects[op.Key] = charges
		cost := op.Cost
		if refusals == 0 {
			cost = 0
		}
		_, statuses = look(charges, now, cost, op.Policy.Limits)
	}
	op.Answer.Set(now, refusals, statuses)
	return nil
}

// look returns what each limit says to a call.
func look(charges []charge, now, cost int64, limits []driver.Limit) (refusals uint64, statuses []driver.Status) {
	for i := range limits {
		l := &limits[i]
		left := func(at int64) int64 { // if no other call comes
			left := l.Units
			for _, c := range charges {
				if cut, _ := l.Cut(at); c.at > cut {
					left -= c.units
				}
			}
			return left
		}
		status := driver.Status{Remaining: max(0, left(now))}
		refused := left(now) < cost
		if refused {
			refusals |= 1 << i
		}
		for _, c := range charges {
			leaves := c.at + l.Window
			if _, stop := l.Cut(c.at); stop != 0 {
				leaves = stop
			}
			if leaves <= now {
				continue
			}
			if refused && status.Retry == 0 && left(leaves) >= cost {
				status.Retry = leaves - now
			}
			if status.Release == 0 && left(leaves) > status.Remaining {
				status.Release = leaves - now
			}
			status.Reset = leaves - now
		}
		statuses = append(statuses, status)
	}
	return refusals, statuses
}
