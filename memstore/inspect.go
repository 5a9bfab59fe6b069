package memstore

import (
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// An Entry is the units that were charged at one instant, or for sliding buckets within one step of the resolution, at
// the latest of their instants. One that lies ahead of the store's clock is a booking.
type Entry struct {
	At    time.Time
	Units int64
}

// Inspect returns the entries of a key's log under a policy's algorithm and resolution, the oldest first, and the store's
// clock. It is for people who debug one key. It may return entries that no longer count; it leaves out units that were
// given back. It returns nil for a key without charges, and under an algorithm that keeps no log. It copies up to
// 100,000 entries and holds the lock of the key's shard meanwhile.
func (s *Store) Inspect(key string, policy *driver.Policy) ([]Entry, time.Time) {
	hash := s.hash(key)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	at := time.UnixMicro(sh.clock.now())
	sub := sh.find(hash, key, policy)
	if sub == nil {
		return nil, at
	}
	log, kept := sub.state.(*window.Log)
	if !kept {
		return nil, at
	}
	var entries []Entry
	for at, units := range log.Entries() {
		if units > 0 {
			entries = append(entries, Entry{time.UnixMicro(at), units})
		}
	}
	return entries, at
}
