package stats

import (
	"cmp"
	"slices"
	"time"
)

// Hottest returns the first n subjects of an order, and when their counts began. It returns none without
// Options.Subjects.
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
			since = s.earlier(since)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y Subject) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Subject, y.Subject))
	})
	return all[:min(n, len(all))], since
}

// earlier returns since, or when the shard began to count if that is earlier. The caller holds mu.
func (s *shard) earlier(since time.Time) time.Time {
	began := s.began
	if s.older != ([orders]*sketch[Subject]{}) {
		began = began.Add(-epoch)
	}
	if began.Before(since) {
		return began
	}
	return since
}

// lines adds up both epochs. The caller holds mu.
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
