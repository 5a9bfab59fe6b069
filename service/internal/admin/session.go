package admin

import (
	"crypto/rand"
	"sync"
	"time"
)

const (
	sessionLife  = 12 * time.Hour
	mostSessions = 1000 // beyond that, the one that ends first ends now
)

// Sessions are those of the browsers that logged in at this process, so that a logout ends one for every copy of its
// cookie. They end with the process. The zero value has none. They are safe for concurrent use.
type sessions struct {
	mu   sync.Mutex
	open map[string]session // guarded by mu: by its ID, which is the value of the cookie
}

type session struct {
	by  string // whose it is, for the log
	end time.Time
}

// begin opens a session and returns its ID.
func (s *sessions) begin(by string, now time.Time) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= mostSessions {
		first := ""
		for id, open := range s.open {
			if first == "" || open.end.Before(s.open[first].end) {
				first = id
			}
		}
		delete(s.open, first)
	}
	if s.open == nil {
		s.open = make(map[string]session)
	}
	id = rand.Text()
	s.open[id] = session{by, now.Add(sessionLife)}
	return id
}

// by returns whose session an ID is, or "" if it has ended or never was.
func (s *sessions) by(id string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, ok := s.open[id]
	if ok && !now.Before(open.end) {
		delete(s.open, id)
		return ""
	}
	return open.by
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}
