package replay

import (
	"slices"

	"example.com/sash"
)

// A trailing counts the units that each client got in the sliding windows of a candidate's limits. What leaves a window
// comes from the rate of all clients, so that it keeps no charges itself.
type trailing struct {
	lengths []int64
	used    [][]usage // by length and client
}

func newTrailing(c *Candidate, clients int, admitted *rate) trailing {
	t := trailing{}
	for _, rule := range c.rules() {
		for _, l := range rule.Limits {
			if !unbounded(rule, l) && !slices.Contains(t.lengths, length(l)) {
				used := make([]usage, clients)
				t.lengths, t.used = append(t.lengths, length(l)), append(t.used, used)
				admitted.windows = append(admitted.windows, rateWindow{length: length(l), left: func(c charge) { used[c.client].now -= c.units }})
			}
		}
	}
	return t
}

// unbounded reports whether a limit has no sliding window to watch: it is of the calendar, or it refuses everything.
func unbounded(rule Rule, l sash.Limit) bool { return l.Period != 0 || rule.Refuses }

// count counts an admitted charge, after the rate.
func (t *trailing) count(c charge) {
	for _, used := range t.used {
		used[c.client].add(c.units)
	}
}

// finish returns the most that a client of each rule got in the window of each limit.
func (t *trailing) finish(s *tally) {
	for r, rule := range s.candidate.rules() {
		for _, l := range rule.Limits {
			if unbounded(rule, l) {
				continue
			}
			m := Most{Window: windowName(l.Window), Limit: l.Units}
			for c, u := range t.used[slices.Index(t.lengths, length(l))] {
				if s.trace.clients[c].rule == r {
					m.Admitted = max(m.Admitted, u.most)
				}
			}
			s.out.OneClient = append(s.out.OneClient, m)
		}
	}
}
