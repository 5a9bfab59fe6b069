package stats

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"example.com/sash/service/internal/decide"
)

// Seen is what the store said last about a subject. The zero value is nothing.
type Seen struct {
	At     time.Time // the store's clock
	Limits []SeenLimit
}

// A SeenLimit is one limit of a Seen: its name, its units, and what was left of them.
type SeenLimit struct {
	Name             string
	Units, Remaining int64
}

func (s *Seen) clone() Seen { return Seen{s.At, slices.Clone(s.Limits)} }

// see notes an answer of the store.
func (s *Seen) see(a *decide.Answer) {
	s.At = a.At
	for i := range a.Limits {
		l := &a.Limits[i]
		if i == len(s.Limits) {
			s.Limits = append(s.Limits, SeenLimit{})
		}
		if was := &s.Limits[i]; was.Name == l.Limit.Name {
			was.Units, was.Remaining = l.Limit.Units, l.Remaining
		} else {
			*was = SeenLimit{strings.Clone(l.Limit.Name), l.Limit.Units, l.Remaining}
		}
	}
	s.Limits = s.Limits[:len(a.Limits)]
}

// LastSeen returns what the store said last about a subject, if it is one of the hottest.
func (r *Registry) LastSeen(key string) Seen {
	if r.subjects == nil {
		return Seen{}
	}
	s := &r.subjects.shards[maphash.String(r.subjects.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sk := range [...]*sketch[Subject]{s.now[ByUnits], s.older[ByUnits]} { // the first has what the second had
		if sk != nil && sk.counters[key] != nil {
			return sk.counters[key].about.seen.clone()
		}
	}
	return Seen{}
}
