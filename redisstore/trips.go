package redisstore

import (
	"sync"
	"time"
)

// trips are the scripts that are on their way to a server or back. The zero trips are none.
type trips struct {
	mu    sync.Mutex
	last  uint64
	began map[uint64]time.Duration // guarded by mu: by clock
}

func (t *trips) begin() (trip uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began == nil {
		t.began = make(map[uint64]time.Duration)
	}
	t.last++
	t.began[t.last] = clock()
	return t.last
}

func (t *trips) end(trip uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.began, trip)
}

// Waits implements [driver.Witness]: for how long the oldest script has been with the client.
func (s *Store) Waits() time.Duration {
	s.trips.mu.Lock()
	defer s.trips.mu.Unlock()
	now := clock()
	oldest := now
	for _, began := range s.trips.began {
		oldest = min(oldest, began)
	}
	return now - oldest
}
