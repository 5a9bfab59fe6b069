package stats

import (
	"hash/maphash"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
)

// mostRefusals is how many refused calls of a subject are kept, 32 bytes each.
const mostRefusals = 50

// A Refusal is a refused call of a subject: the store's time if the store refused it, and else this instance's.
type Refusal struct {
	At    time.Time
	Units int64
}

// refusals are the latest refused calls of a subject.
type refusals struct {
	all  []Refusal
	next int // the oldest, once there are mostRefusals
}

func (r *refusals) add(a *decide.Answer, now time.Time) {
	if a.Source == sash.FromStore && !a.At.IsZero() {
		now = a.At
	}
	refused := Refusal{now, a.Cost}
	if len(r.all) < mostRefusals {
		r.all = append(r.all, refused)
		return
	}
	r.all[r.next] = refused
	r.next = (r.next + 1) % mostRefusals
}

// inOrder returns a copy, the oldest first.
func (r *refusals) inOrder() []Refusal { return slices.Concat(r.all[r.next:], r.all[:r.next]) }

// Refusals returns the latest refused calls of a subject, the oldest first, if it is one of the most refused ones. They are
// those of this instance, at most 50.
func (r *Registry) Refusals(key string) []Refusal {
	all := []Refusal{}
	if r.subjects == nil {
		return all
	}
	s := &r.subjects.shards[maphash.String(r.subjects.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sk := range [...]*sketch[Subject]{s.older[ByRefused], s.now[ByRefused]} {
		if sk != nil && sk.counters[key] != nil {
			all = append(all, sk.counters[key].about.refusals.inOrder()...)
		}
	}
	return all[max(0, len(all)-mostRefusals):]
}
