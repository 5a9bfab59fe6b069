package lease

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A lease is one that this process has fetched, and gives back what is left of.
type lease struct {
	name    id
	began   int64     // of its errand, by the holder's clock
	fetched time.Time // when it began by this process's
	grant   driver.Settlement
	timer   *time.Timer
}

// fetched are the leases that this process gives back.
type fetched struct {
	mu     sync.Mutex
	leases map[fetchedName]*lease
}

const (
	mostFetched = 1 << 14
	mostReturns = 64 // by Release at once: each takes two round trips, one of them to the home
)

// full reports whether this process holds as many leases as it may. Then the home decides.
func (f *fetched) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.leases) >= mostFetched
}

type fetchedName struct {
	name  id
	began int64
}

func (l *lease) key() fetchedName { return fetchedName{l.name, l.began} }

// keep gives back what is left of a lease at its end.
func (s *Store) keep(l *lease) {
	s.fetched.mu.Lock()
	defer s.fetched.mu.Unlock()
	s.fetched.leases[l.key()] = l
	ends := l.fetched.Add(time.Duration(l.grant.Delay)*time.Microsecond + s.longest)
	l.timer = time.AfterFunc(time.Until(ends), func() { s.over(l) })
}

// over gives back what is left of a lease that has ended.
func (s *Store) over(l *lease) {
	s.fetched.mu.Lock()
	if s.fetched.leases[l.key()] != l {
		s.fetched.mu.Unlock()
		return
	}
	delete(s.fetched.leases, l.key())
	s.fetched.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), returnWithin)
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
	return s.Settle(ctx, set)
}

// Release gives back the rest of all leases that this process has fetched, at once, for a process that shuts down. Later
// calls get new leases. The error says how many leases could not be given back; their units stay charged until they leave
// the window.
func (s *Store) Release(ctx context.Context) error {
	s.fetched.mu.Lock()
	all := s.fetched.leases
	s.fetched.leases = make(map[fetchedName]*lease)
	s.fetched.mu.Unlock()
	var failed atomic.Int64
	var together sync.WaitGroup
	places := make(chan struct{}, mostReturns)
	for _, l := range all {
		l.timer.Stop()
		places <- struct{}{}
		together.Go(func() {
			if s.giveBack(ctx, l) != nil {
				failed.Add(1)
			}
			<-places
		})
	}
	together.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("lease: %d leases could not be given back: %w", n, sash.ErrUnavailable)
	}
	return nil
}
