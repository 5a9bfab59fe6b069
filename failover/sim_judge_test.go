package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// judgeStats compares what a process counts with what it admitted and with what the server received.
func (s *simulation) judgeStats(process int, stats Stats) {
	var admitted, received int64
	for _, c := range s.calls {
		if c.process == fmt.Sprintf("p%d ", process) && c.err == nil && c.res.Allowed && c.res.Source == driver.FromLocal {
			admitted += c.cost*int64(len(c.keys)) + c.back // written and given back
			if c.once {                                    // the server can have charged it before, and a repetition is written again: the ID says so
				received += c.cost
			}
		}
	}
	for _, key := range s.keys {
		received += s.server.written[fmt.Sprintf("p%d ", process)+key]
	}
	if stats.Written > received { // what has left before its reply came is counted as nothing
		s.broken("process %d wrote %d units, and counts %+v", process, received, stats)
	}
	if counted := stats.Written + stats.Lost + stats.Doubtful; counted > admitted {
		s.broken("process %d admitted %d units locally and counts %d", process, admitted, counted)
	}
}

// judgeSettlement checks that a settlement of a local admission is doubtful only if the store can have charged that: it
// received the call or a write, or the charge was lost or reset.
func (s *simulation) judgeSettlement(c *simCall, before, after Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server.mu.Lock()
	sent := s.server.asked[c.id] || slices.ContainsFunc(s.server.writes[c.process+"c"], func(w *simWrite) bool { return w.sent.After(c.began) })
	s.server.mu.Unlock()
	if after.Doubtful > before.Doubtful && !sent && before.Lost == 0 && !s.forgot(c, c.settled) {
		s.problems = append(s.problems, fmt.Sprintf("call %x: %d units are doubtful for nothing", c.id, after.Doubtful-before.Doubtful))
	}
}

// judgeReset checks that what a process admitted locally before a reset is not written after it.
func (s *simulation) judgeReset(r *simCall) {
	if r.err != nil {
		return
	}
	var written int64
	for _, w := range s.server.writes[r.process+"c"] {
		if !w.done.After(s.server.resets[r.id]) || !w.answered && !w.sent.After(r.ended) { // late on the network
			continue
		}
		written += w.units
		owed := int64(0)
		for _, c := range s.calls {
			if c.process == r.process && c.has("c") && c.admitted(driver.FromLocal) && !c.ended.Before(r.began) && !c.ended.After(w.sent) {
				owed += c.cost
			}
		}
		if written > owed {
			s.broken("reset %x: %d units were written afterwards, and %d were admitted locally", r.id, written, owed)
			return
		}
	}
}

// judge looks at everything that was done.
func (s *simulation) judge() {
	for i := range s.calls {
		s.judgeCall(&s.calls[i])
	}
	for i := range s.resets {
		s.judgeReset(&s.resets[i])
	}
	for call, n := range s.server.executions {
		if n > 1 && call != 0 {
			s.broken("call %x was charged or refused %d times", call, n)
		}
	}
	for _, key := range s.keys {
		s.judgeStore(key)
		for i := range s.instances {
			s.judgeLocal(fmt.Sprintf("p%d ", i), key)
		}
	}
}

// judgeCall looks at one answer: in time, from where the policy says, and charged where it says.
func (s *simulation) judgeCall(c *simCall) {
	took := c.ended.Sub(c.began)
	if took > min(DefaultBudget, c.timeout)+10*time.Millisecond {
		s.broken("call %x: the answer took %v", c.id, took)
	}
	admission, charged := s.server.admissions[c.id]
	mode := s.modes.Mode(c.cost)
	switch {
	case c.err != nil:
		if gaveUp := errors.Is(c.err, context.DeadlineExceeded); gaveUp && took < c.timeout || !gaveUp && !errors.Is(c.err, sash.ErrUnavailable) {
			s.broken("call %x: %v after %v", c.id, c.err, took)
		} else if !gaveUp && mode != Closed {
			s.broken("call %x has an error under mode %v: %v", c.id, mode, c.err)
		}
	case c.res.Source == driver.FromStore:
		wrong := c.res.Allowed != charged
		if c.once { // another try can be charged, or this process can have written the call
			wrong = c.res.Allowed && !charged && !c.repeats
		}
		if wrong || c.res.Cause != nil {
			s.broken("call %x: the store's answer is %v, and it admitted: %v %v", c.id, c.res.Allowed, charged, admission)
		}
	case mode == Closed,
		mode == Open && (c.res.Source != driver.FromPolicy || !c.res.Allowed),
		mode == Local && c.res.Source != driver.FromLocal,
		!errors.Is(c.res.Cause, sash.ErrUnavailable):
		s.broken("call %x under mode %v: %v from the %v because of %v", c.id, mode, c.res.Allowed, c.res.Source, c.res.Cause)
	}
}

// judgeStore checks the bound of what the store admitted, as callers saw it: N in every window, what
// was lost besides, and N for a clock that jumped ahead.
func (s *simulation) judgeStore(key string) {
	type admission struct {
		when  time.Time
		units int64
	}
	var all []admission
	for _, c := range s.calls {
		if a := s.server.admissions[c.id]; c.has(key) && c.admitted(driver.FromStore) && !a.lost {
			all = append(all, admission{a.when, c.cost - c.back})
		}
	}
	for _, l := range s.limits {
		for _, last := range all {
			from, units, bound := last.when.Add(-l.Window), int64(0), l.Units
			for _, a := range all {
				if a.when.After(from) && !a.when.After(last.when) {
					units += a.units
				}
			}
			for _, jump := range s.server.jumps {
				if jump.After(from) && !jump.After(last.when) {
					bound += l.Units
				}
			}
			for id, reset := range s.server.resets {
				if key == "c" && id != 0 && reset.After(from) && !reset.After(last.when) {
					bound += l.Units
				}
			}
			if units > bound {
				s.broken("%d units of %s were admitted by the store in %v, at most %d", units, key, l.Window, bound)
			}
		}
	}
}

// judgeLocal checks that a process admitted locally no more than its share, with what it knew of, and that
// nothing was written to the store twice.
func (s *simulation) judgeLocal(process, key string) {
	var owed int64
	for i, c := range s.calls {
		if c.process != process || !c.has(key) || !c.admitted(driver.FromLocal) {
			continue
		}
		if _, charged := s.server.admissions[c.id]; !charged {
			owed += c.cost
		}
		for _, l := range s.limits {
			share, units := l.Units/int64(s.instances), int64(0)
			for j, d := range s.calls {
				if d.process != process || !d.has(key) || !d.ended.Truncate(time.Microsecond).After(c.ended.Truncate(time.Microsecond).Add(-l.Window)) {
					continue
				}
				known := d.admitted(driver.FromLocal) && j <= i || d.admitted(driver.FromStore) && d.ended.Before(c.ended)
				if known && !s.forgot(&d, c.ended) {
					units += d.cost - d.back
				}
			}
			if units > share {
				s.broken("%s admitted %d units of %s locally in %v: its share is %d", process, units, key, l.Window, share)
			}
		}
	}
	if written := s.server.written[process+key]; written > owed {
		s.broken("%d units of %s that %s admitted locally were written to the store; %d were owed", written, key, process, owed)
	}
}

// forgot reports whether the process of a call can have forgotten it by a reset until then.
func (s *simulation) forgot(c *simCall, until time.Time) bool {
	return c.has("c") && slices.ContainsFunc(s.resets, func(r simCall) bool {
		return r.process == c.process && !r.began.Before(c.began) && !r.began.After(until)
	})
}

func (c *simCall) has(key string) bool { return slices.Contains(c.keys, key) }

func (c *simCall) admitted(by sash.Source) bool {
	return c.err == nil && c.res.Allowed && c.res.Source == by && !c.repeats
}
