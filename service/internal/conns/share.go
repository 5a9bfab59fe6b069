package conns

import "sync"

// A Share bounds what the clients of a port hold together of something. Each may hold as much as it leaves free: one alone has at
// most a half, a second one half of the rest at least, and those that come and go tend to equal parts. These are the dynamic
// thresholds of Choudhury and Hahne (Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998). It is safe
// for concurrent use.
type Share struct {
	most int64

	mu   sync.Mutex
	all  int64            // guarded by mu
	held map[string]int64 // guarded by mu: by client
}

// NewShare returns a Share of most units.
func NewShare(most int64) *Share { return &Share{most: most, held: make(map[string]int64)} }

// Take reports whether a client may hold n more, which are then its own until Give.
func (s *Share) Take(client string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[client]+n > s.most-s.all-n {
		return false
	}
	s.all += n
	s.held[client] += n
	return true
}

// Give gives back what Take took.
func (s *Share) Give(client string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all -= n
	if s.held[client] -= n; s.held[client] == 0 {
		delete(s.held, client)
	}
}
