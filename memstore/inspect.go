package memstore

import (
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// An Entry is units that were charged at an instant. Of sliding buckets it is those of one step of the resolution,
// at the latest of their instants.
type Entry struct {
	At    time.Time
	Units int64
}

// Inspect returns what a key's log holds under a policy's algorithm and resolution, the oldest first, and the
// store's clock: for people who look at one key. There may be entries that count no more, as long as nothing has
// taken their place; what was given back is left out. It is nil for a key that holds nothing, and under an
// algorithm that keeps no log. It copies up to 100,000 entries, while which nobody else decides on the key's shard.
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
