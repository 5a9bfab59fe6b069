// Package outside is a store and a decorator as somebody writes them who has only the public packages of Sash.
package outside

import (
	"context"
	"sync"
	"time"

	"example.com/sash/driver"
)

// A Store keeps every charge of the sliding log in a slice. It decides, and has no other power.
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

// Decide implements driver.Store.
func (s *Store) Decide(_ context.Context, req driver.Request) (driver.Answer, error) {
	if req.Policy.Algorithm != driver.SlidingLog {
		return driver.Answer{}, driver.ErrUnsupported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().UnixMicro()
	charges := redate(s.subjects[req.Key], now)
	s.subjects[req.Key] = charges
	refusals, statuses := look(charges, now, req.Cost, req.Policy.Limits)
	if req.Cost > 0 && (refusals == 0 || req.Policy.CountRefused) {
		charges = add(charges, now, req.Cost)
		s.subjects[req.Key] = charges
		cost := req.Cost
		if refusals == 0 {
			cost = 0
		}
		_, statuses = look(charges, now, cost, req.Policy.Limits)
	}
	return driver.NewAnswer(now, refusals, statuses), nil
}

// redate dates charges that are later than now to now: the clock went back.
func redate(charges []charge, now int64) []charge {
	var later int64
	for n := len(charges); n > 0 && charges[n-1].at > now; n-- {
		later += charges[n-1].units
		charges = charges[:n-1]
	}
	if later > 0 {
		charges = add(charges, now, later)
	}
	return charges
}

// add adds units to the charge of an instant, the last one there is, or makes one.
func add(charges []charge, now, units int64) []charge {
	if n := len(charges); n > 0 && charges[n-1].at == now {
		charges[n-1].units += units
		return charges
	}
	return append(charges, charge{now, units})
}

// look returns what each limit says to a call.
func look(charges []charge, now, cost int64, limits []driver.Limit) (refusals uint64, statuses []driver.Status) {
	for i := range limits {
		l := &limits[i]
		cut, stop := l.Cut(now)
		leaves := func(c charge) int64 {
			if stop != 0 {
				return stop - now
			}
			return c.at + l.Window - now
		}
		var used int64
		var inside []charge
		for _, c := range charges {
			if c.at > cut && c.units > 0 {
				inside = append(inside, c)
				used += c.units
			}
		}
		status := driver.Status{Remaining: max(0, l.Units-used)}
		if used+cost > l.Units {
			refusals |= 1 << i
		}
		left := used
		for _, c := range inside {
			if status.Retry == 0 && left+cost > l.Units && left-c.units+cost <= l.Units {
				status.Retry = leaves(c)
			}
			left -= c.units
			if status.Release == 0 && max(0, l.Units-left) > status.Remaining {
				status.Release = leaves(c)
			}
			status.Reset = leaves(c)
		}
		if stop != 0 && used > 0 { // all leave at once
			status.Release, status.Reset = stop-now, stop-now
			if used+cost > l.Units {
				status.Retry = stop - now
			}
		}
		statuses = append(statuses, status)
	}
	return refusals, statuses
}

// A Counter is a decorator that counts decisions. It has all powers of the store behind it.
type Counter struct {
	driver.Passthrough
	mu sync.Mutex
	n  int // guarded by mu
}

// Decide implements driver.Store.
func (c *Counter) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Next.Decide(ctx, req)
}
