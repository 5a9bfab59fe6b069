package redisstore

import (
	"sync"
	"time"
)

// A trip is a script that is on its way to a server or back.
type trip struct {
	began        time.Duration // by clock
	older, newer *trip         // guarded by mu of trips
}

// trips are those under way, in order. The zero trips are none.
type trips struct {
	mu             sync.Mutex
	oldest, newest *trip // guarded by mu
}

func (t *trips) begin() *trip {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := &trip{began: clock(), older: t.newest}
	if t.newest = one; one.older == nil {
		t.oldest = one
	} else {
		one.older.newer = one
	}
	return one
}

func (t *trips) end(one *trip) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.older == nil {
		t.oldest = one.newer
	} else {
		one.older.newer = one.newer
	}
	if one.newer == nil {
		t.newest = one.older
	} else {
		one.newer.older = one.older
	}
}

// Waits implements [driver.Witness]: for how long the oldest script has been with the client.
func (s *Store) Waits() time.Duration {
	s.trips.mu.Lock()
	defer s.trips.mu.Unlock()
	if s.trips.oldest == nil {
		return 0
	}
	return clock() - s.trips.oldest.began
}
