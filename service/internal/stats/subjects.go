package stats

import (
	"cmp"
	"errors"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

const (
	// epoch is how long the counts of subjects last. The previous counts are kept, so Hottest covers about one to two epochs.
	epoch = 5 * time.Minute

	shards   = 16      // a key is in one of them, so that decisions seldom wait for each other
	counters = 128     // of each shard and order
	maxText  = 1 << 10 // bytes of the entries that a Subject keeps
)

// An Order is what Hottest orders subjects by.
type Order uint8

// The orders.
const (
	ByUnits   Order = iota // units requested, admitted or not
	ByRefused              // refused requests, including those of shadow mode
	orders
)

// A Subject is one of the hottest subjects.
type Subject struct {
	// Subject is the key that is charged. Domain and Entries are those of its first request. Entries are nil if they are
	// too long to keep.
	Subject string         `json:"subject"`
	Domain  string         `json:"domain"`
	Entries []config.Entry `json:"entries"`
	// Count is the number that orders the subject. It is too high by AtMostOver at most.
	Count      int64 `json:"count"`
	AtMostOver int64 `json:"at_most_over"`
	// Last is the outcome of its last request: allowed, uncounted, refused, banned, shadow or error. RefusedBy is the
	// limit that refused it, or null.
	Last      string  `json:"last"`
	RefusedBy *string `json:"refused_by"`
}

// subjects counts the hottest subjects in bounded memory: some megabytes at most, whatever requests contain.
type subjects struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	began time.Time      // guarded by mu: when the epoch began
	now   [orders]sketch // guarded by mu
	older [orders]sketch // guarded by mu: the epoch before
}

func (c *subjects) count(o *decide.Observation, i int, outcome decide.Outcome) {
	a, now := &o.Answers[i], o.Began.Add(o.Took)
	if a.Key == "" || a.Cost <= 0 || errors.Is(o.Err, sash.ErrCostAboveLimit) {
		return // nothing is decided about the subject
	}
	if (outcome == decide.Allowed || outcome == decide.Uncounted) && !o.Allowed {
		outcome = decide.Refused // another part of the request refused it
	}
	s := &c.shards[maphash.String(c.seed, a.Key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	if admissible(a) {
		s.add(ByUnits, a.Cost, o, i, outcome)
	}
	if a.Refused {
		s.add(ByRefused, 1, o, i, outcome)
	}
}

// admissible reports whether the limits could ever admit the units. A request for an absurd number must not push others off the list.
func admissible(a *decide.Answer) bool {
	if len(a.Limits) > 0 {
		return !slices.ContainsFunc(a.Limits, func(l sash.LimitResult) bool { return a.Cost > l.Limit.Units })
	}
	return a.Rule != nil && // the store was not asked
		!slices.ContainsFunc(a.Rule.Limits, func(l sash.Limit) bool { return a.Cost > l.Units })
}

// turn begins a new epoch if the current one is over. The caller holds mu.
func (s *shard) turn(now time.Time) {
	switch age := now.Sub(s.began); {
	case age < epoch:
		return
	case age < 2*epoch:
		s.older, s.began = s.now, s.began.Add(epoch)
	default:
		s.older, s.began = [orders]sketch{}, now
	}
	s.now = [orders]sketch{}
}

// add adds to a subject's count in one order. The caller holds mu.
func (s *shard) add(order Order, weight int64, o *decide.Observation, i int, outcome decide.Outcome) {
	a := &o.Answers[i]
	line, taken := s.now[order].add(a.Key, weight)
	if taken {
		line.Domain, line.Entries = strings.Clone(o.Domain), keep(o.Parts[i].Entries)
	}
	line.Last, line.RefusedBy = "banned", nil
	if outcome != banned {
		line.Last = outcome.String()
	}
	if name := a.RefusedBy.Limit.Name; a.Refused && name != "" {
		line.RefusedBy = &name
	}
}

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

// Hottest returns the first n subjects in an order, and when their counts began. Without Options.Subjects it returns none.
func (r *Registry) Hottest(order Order, n int) ([]Subject, time.Time) {
	now := time.Now()
	since, all := now, []Subject{}
	if r.subjects == nil {
		return all, since
	}
	for i := range r.subjects.shards {
		s := &r.subjects.shards[i]
		s.mu.Lock()
		if !s.began.IsZero() {
			s.turn(now)
			all = append(all, s.lines(order)...)
			began := s.began
			if len(s.older[ByUnits].all)+len(s.older[ByRefused].all) > 0 {
				began = began.Add(-epoch)
			}
			if began.Before(since) {
				since = began
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y Subject) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Subject, y.Subject))
	})
	return all[:min(n, len(all))], since
}

// lines returns the sums of both epochs. The caller holds mu.
func (s *shard) lines(order Order) []Subject {
	out := slices.Clone(s.now[order].all)
	for _, older := range s.older[order].all {
		if i, known := s.now[order].at[older.Subject]; known {
			out[i].Count = plus(out[i].Count, older.Count)
			out[i].AtMostOver = plus(out[i].AtMostOver, older.AtMostOver)
		} else {
			out = append(out, older)
		}
	}
	return out
}

// A sketch counts the heaviest of many subjects in bounded memory by the space-saving algorithm. It has a fixed
// number of counters. A key without a counter takes over the smallest, with its count. The zero value is ready.
//
// So no count is too low, and none is too high by more than AtMostOver. Every key with more than the sum of all
// weights divided by the number of counters has a counter.
type sketch struct {
	all []Subject
	at  map[string]int // the index of a key's counter in all
}

// add adds weight to the count of a key. It returns the key's counter, and whether the counter is new to the key.
func (s *sketch) add(key string, weight int64) (line *Subject, taken bool) {
	i, known := s.at[key]
	switch {
	case known:
	case len(s.all) == 0:
		s.at = make(map[string]int)
		fallthrough
	case len(s.all) < counters:
		i = len(s.all)
		s.all = append(s.all, Subject{})
	default:
		for j := range s.all {
			if s.all[j].Count < s.all[i].Count {
				i = j
			}
		}
		delete(s.at, s.all[i].Subject)
	}
	if line = &s.all[i]; !known {
		*line = Subject{Subject: key, Count: line.Count, AtMostOver: line.Count}
		s.at[key] = i
	}
	line.Count = plus(line.Count, weight)
	return line, !known
}

// plus adds numbers that are not negative. It stops at the largest number, because requests choose the weights.
func plus(x, y int64) int64 {
	if x > math.MaxInt64-y {
		return math.MaxInt64
	}
	return x + y
}
