// Package top knows which subjects ask for most and which are refused most, over the last minutes and in bounded
// memory: some megabytes at most, whatever requests say.
//
// Counts are those of this process. They begin anew every Span, and those of the Span before are kept: so an answer
// is about the last one to two Spans.
package top

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// Span is after how long counts begin anew.
const Span = 5 * time.Minute

const (
	shards   = 16      // a key is in one of them: so that decisions seldom wait for each other
	counters = 128     // of each shard and order
	maxText  = 1 << 10 // bytes of the entries that are kept
)

// An Order is what subjects are ordered by.
type Order uint8

// The orders.
const (
	ByUnits   Order = iota // units asked for, admitted or not
	ByRefused              // requests refused, also where that does not bind
	orders
)

// What became of a request, as Subject.Last says it.
const (
	Allowed = "allowed"
	Refused = "refused"
	Shadow  = "shadow" // refused by a rule that stops nothing
	Banned  = "banned"
	Failed  = "error" // there was no decision
)

// A Subject is one line of an answer.
type Subject struct {
	// Subject is the key that is charged, and Domain and Entries those of the last request that was; Entries are
	// nil where they are too long to keep.
	Subject string         `json:"subject"`
	Domain  string         `json:"domain"`
	Entries []config.Entry `json:"entries"`
	// Rule is the rule's name in statistics.
	Rule string `json:"rule"`
	// Count is what it is ordered by, and AtMostOver by how much that may be too high.
	Count      int64 `json:"count"`
	AtMostOver int64 `json:"at_most_over"`
	// Last is what became of the last request that was counted, LastAt when, and RefusedBy the limit that refused
	// it, or null.
	Last      string    `json:"last"`
	LastAt    time.Time `json:"last_at"`
	RefusedBy *string   `json:"refused_by"`
}

// A Counter counts. It is safe for concurrent use. Make it with New.
type Counter struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	began time.Time                // guarded by mu: of the Span that goes on
	now   [orders]*sketch[Subject] // guarded by mu; nil before the first request
	older [orders]*sketch[Subject] // guarded by mu; nil where nothing was counted in the Span before
}

// New returns a counter. Its Observe is a decide.Observer.
func New() *Counter { return &Counter{seed: maphash.MakeSeed()} }

// Observe counts a request.
func (c *Counter) Observe(_ context.Context, o *decide.Observation) {
	now := o.Began.Add(o.Took)
	for i := range o.Answers {
		a := &o.Answers[i]
		if a.Key == "" || a.Units <= 0 || a.Replaced {
			continue
		}
		s := &c.shards[maphash.String(c.seed, a.Key)%shards]
		s.mu.Lock()
		s.turn(now)
		s.count(ByUnits, min(a.Units, sash.MaxUnits), o, i, now) // no limit has more
		if a.Refused {
			s.count(ByRefused, 1, o, i, now)
		}
		s.mu.Unlock()
	}
}

// turn begins a new Span where one is over. The caller holds mu.
func (s *shard) turn(now time.Time) {
	switch age := now.Sub(s.began); {
	case age < Span:
		return
	case age < 2*Span:
		s.older, s.began = s.now, s.began.Add(Span)
	default:
		s.older, s.began = [orders]*sketch[Subject]{}, now
	}
	s.now = [orders]*sketch[Subject]{}
}

// count counts for one order. The caller holds mu.
func (s *shard) count(order Order, weight int64, o *decide.Observation, i int, now time.Time) {
	if s.now[order] == nil {
		s.now[order] = newSketch[Subject](counters)
	}
	a := &o.Answers[i]
	line, taken := s.now[order].add(a.Key, weight)
	about := &line.about
	if taken {
		*about = Subject{Subject: a.Key, Domain: o.Domain, Entries: keep(o.Parts[i].Entries), Rule: strings.Clone(a.Metric)}
	}
	about.Last, about.LastAt, about.RefusedBy = last(o, a), now, nil
	if name := a.RefusedBy.Limit.Name; a.Refused && name != "" {
		about.RefusedBy = &name
	}
}

func last(o *decide.Observation, a *decide.Answer) string {
	switch {
	case a.Banned:
		return Banned
	case a.Refused && a.Soft():
		return Shadow
	case a.Refused:
		return Refused
	case o.Err != nil:
		return Failed
	case !o.Allowed:
		return Refused // because of another part of the request
	}
	return Allowed
}

// keep copies entries, unless they are long.
func keep(entries []config.Entry) []config.Entry {
	length := 0
	out := make([]config.Entry, len(entries))
	for i, e := range entries {
		if length += len(e.Key) + len(e.Value); length > maxText {
			return nil
		}
		out[i] = config.Entry{Key: strings.Clone(e.Key), Value: strings.Clone(e.Value)}
	}
	return out
}

// Top returns the first n subjects of an order, and since when they are counted.
func (c *Counter) Top(order Order, n int) ([]Subject, time.Time) {
	now := time.Now()
	since, all := now, []Subject{}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		if !s.began.IsZero() {
			s.turn(now)
			all = append(all, s.lines(order)...)
			since = earlier(since, s)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y Subject) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Subject, y.Subject))
	})
	return all[:min(n, len(all))], since
}

// earlier returns since when a shard counts, when that is earlier. The caller holds mu.
func earlier(since time.Time, s *shard) time.Time {
	began := s.began
	if s.older != ([orders]*sketch[Subject]{}) {
		began = began.Add(-Span)
	}
	if began.Before(since) {
		return began
	}
	return since
}

// lines adds up both Spans. The caller holds mu.
func (s *shard) lines(order Order) []Subject {
	at := make(map[string]int)
	var out []Subject
	for _, sk := range []*sketch[Subject]{s.now[order], s.older[order]} {
		if sk == nil {
			continue
		}
		for key, c := range sk.counters {
			if i, known := at[key]; known {
				out[i].Count = plus(out[i].Count, c.count)
				out[i].AtMostOver = plus(out[i].AtMostOver, c.above)
				continue
			}
			at[key] = len(out)
			line := c.about
			line.Count, line.AtMostOver = c.count, c.above
			out = append(out, line)
		}
	}
	return out
}
