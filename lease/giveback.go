package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.com/sash/driver"
)

// A lease is one that this process has fetched, and gives back what is left of.
type lease struct {
	errandName
	fetched time.Time // when its errand began, by this process's clock
	grant   driver.Settlement
	timer   *time.Timer
}

const mostReturns = 64 // by Release at once: each takes two round trips, one of them to the home

// keep gives back what is left of a lease at its end.
func (s *Store) keep(l *lease) {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	s.work.leases[l.errandName] = l
	ends := l.fetched.Add(time.Duration(l.grant.Delay)*time.Microsecond + s.longest)
	l.timer = time.AfterFunc(time.Until(ends), func() { s.over(l) })
}

// over gives back what is left of a lease that has ended.
func (s *Store) over(l *lease) {
	done := make(chan struct{})
	s.work.mu.Lock()
	held := s.work.leases[l.errandName] == l
	if held {
		delete(s.work.leases, l.errandName)
		s.work.doing[done] = struct{}{}
	}
	s.work.mu.Unlock()
	if !held {
		return
	}
	defer s.work.end(done, func() {})
	ctx, cancel := context.WithTimeout(context.Background(), s.returnWithin())
	defer cancel()
	_ = s.giveBack(ctx, l)
}

// giveBack takes what is left out of a lease and settles it at home. If that fails it stays charged until it leaves the window.
func (s *Store) giveBack(ctx context.Context, l *lease) error {
	units, err := s.holder.takeBack(ctx, l.name, l.began, 0)
	if err != nil || units == 0 {
		return err
	}
	return s.settle(ctx, l.grant, units)
}

// settle gives units of a charge back.
func (s *Store) settle(ctx context.Context, set driver.Settlement, units int64) (err error) {
	defer func() {
		if r := recover(); r != nil { // no caller is on this goroutine
			err = errPanic
		}
	}()
	set.Units = max(0, set.Request.Cost-units)
	set.Request.Policy = s.lengthened(set.Request.Policy)
	return s.Passthrough.Settle(ctx, set)
}

// returnWithin is the longest time to give units back.
func (s *Store) returnWithin() time.Duration { return max(s.home.within, usualWithin) }

// Release gives back the rest of all leases that this process has fetched, at once, for a process that shuts down. It waits
// for errands that are under way, and gives back what they bring. Later calls get new leases. The error says how many
// leases could not be given back; their units stay charged until they leave the window.
func (s *Store) Release(ctx context.Context) error {
	failed, why := s.release(ctx)
	left := s.work.ended(ctx)
	more, last := s.release(ctx)
	if failed += more; why == nil {
		why = last
	}
	switch {
	case left > 0:
		return fmt.Errorf("lease: %d leases could not be given back, and %d errands are under way: %w", failed, left, ctx.Err())
	case failed > 0:
		return fmt.Errorf("lease: %d leases could not be given back: %w", failed, why)
	}
	return nil
}

// release gives back the leases that this process has now. It returns of how many it could not, and one of the reasons.
func (s *Store) release(ctx context.Context) (failed int, why error) {
	s.work.mu.Lock()
	all := s.work.leases
	s.work.leases = make(map[errandName]*lease)
	s.work.mu.Unlock()
	var mu sync.Mutex // guards the results
	var together sync.WaitGroup
	places := make(chan struct{}, mostReturns)
	for _, l := range all {
		l.timer.Stop()
		places <- struct{}{}
		together.Go(func() {
			defer func() { <-places }()
			if err := s.giveBack(ctx, l); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed, why = failed+1, err
			}
		})
	}
	together.Wait()
	return failed, why
}
