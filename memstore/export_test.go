package memstore

// Swept drops every expired key and returns the counts.
func (s *Store) Swept() Stats {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.sweep(sh.clock.now(), sh.held())
		sh.mu.Unlock()
	}
	return s.Stats()
}
