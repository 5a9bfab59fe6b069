package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	definition "example.com/sash/internal/judge"
)

// judgeStats compares what a process counts with what it admitted and with what the server received.
func (s *simulation) judgeStats(process int, stats Stats) {
	var admitted, received int64
	for _, c := range s.calls {
		if c.process == fmt.Sprintf("p%d ", process) && c.left() {
			admitted += 2 * c.cost * int64(len(c.keys)) // perhaps
		}
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
	sent := len(s.server.asked[c.id]) > 0 || slices.ContainsFunc(s.server.writes[c.process+"c"], func(w *simWrite) bool { return w.sent.After(c.began) })
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
	s.findStarts()
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
		s.judgeOrder(key)
		for i := range s.instances {
			s.judgeLocal(fmt.Sprintf("p%d ", i), key)
		}
	}
}

// judgeCall looks at one answer: in time, from where the policy says, and charged where it says.
func (s *simulation) judgeCall(c *simCall) {
	took := c.ended.Sub(c.began)
	budget := max(DefaultBudget, min(c.within, patientBudgets*DefaultBudget)) // a booking is patient
	turn := took
	for _, asked := range s.server.asked[c.id] { // in order, and by other tries too
		if !asked.Before(c.began) {
			turn = min(turn, asked.Sub(c.began))
		}
	}
	const late = 10 * time.Millisecond
	if turn > min(max(longestWait, budget), c.timeout)+late || took-turn > budget+late || took > c.timeout+late {
		s.broken("call %x: the answer took %v, of which %v for its turn", c.id, took, turn)
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
		if c.res.Allowed && charged && !c.once && c.ended.Add(c.res.Delay).Before(admission.start()) {
			s.broken("call %x starts early: %v after %v, booked for %v", c.id, c.res.Delay, c.ended, admission.start())
		}
	case mode == Closed,
		mode == Open && (c.res.Source != driver.FromPolicy || !c.res.Allowed),
		mode == Local && c.res.Source != driver.FromLocal,
		!errors.Is(c.res.Cause, sash.ErrUnavailable):
		s.broken("call %x under mode %v: %v from the %v because of %v", c.id, mode, c.res.Allowed, c.res.Source, c.res.Cause)
	}
}

// judgeStore checks the bound of what the store admitted, as callers saw it: N in every window, what was lost besides. What
// was decided before each jump of the clock ahead and each reset counts apart.
func (s *simulation) judgeStore(key string) {
	charges := make(map[[2]int][]definition.Charge) // by the jumps and resets before the decision
	for _, c := range s.calls {
		if a := s.server.admissions[c.id]; c.has(key) && c.admitted(driver.FromStore) && !a.lost {
			at := a.start().UnixNano()
			charges[a.epoch(key)] = append(charges[a.epoch(key)], definition.Charge{From: at, To: at, Units: c.cost - c.back})
		}
	}
	for _, l := range s.limits {
		for _, of := range charges {
			if full, over := definition.Fullest(of, int64(l.Window), l.Units); over > 0 {
				s.broken("%d units of %s were admitted by the store in %v, at most %d", full.Units, key, l.Window, l.Units)
			}
		}
	}
}

// epoch returns how often the clock had jumped ahead, and the key had been reset, before a decision.
func (a simTime) epoch(key string) [2]int {
	if key != "c" {
		return [2]int{a.ahead, 0}
	}
	return [2]int{a.ahead, a.resets}
}

// judgeOrder checks that bookings start in the order in which they were decided, until units come back: those of the store over
// all processes, and those that a process admitted locally. A jump ahead and a reset begin another queue.
func (s *simulation) judgeOrder(key string) {
	var open time.Time // when units came back, or may have, because a caller got no answer
	for _, c := range s.calls {
		at := c.settled
		if c.err != nil && c.res.Source == driver.FromStore {
			at = c.ended
		}
		if c.has(key) && (c.back > 0 || c.err != nil) && !at.IsZero() && (open.IsZero() || at.Before(open)) {
			open = at
		}
	}
	for i, c := range s.calls {
		for j, d := range s.calls {
			if !open.IsZero() && !d.ended.Before(open) {
				continue
			}
			if c.within == 0 || d.within == 0 || c.back == c.cost || d.back == d.cost || !c.has(key) || !d.has(key) {
				continue
			}
			first, second := s.server.admissions[c.id], s.server.admissions[d.id]
			switch {
			case c.admitted(driver.FromStore) && d.admitted(driver.FromStore):
				if first.decision < second.decision && second.start().Before(first.start()) && !first.lost && !second.lost &&
					first.epoch(key) == second.epoch(key) {
					s.broken("call %x overtakes call %x on %s: it starts at %v, before %v", d.id, c.id, key, second.start(), first.start())
				}
			case i < j && c.process == d.process && c.admitted(driver.FromLocal) && d.admitted(driver.FromLocal):
				if d.res.At.Before(c.res.At) && !s.forgot(&c, d.ended) {
					s.broken("call %x overtakes call %x on %s locally: it starts at %v, before %v", d.id, c.id, key, d.res.At, c.res.At)
				}
			}
		}
	}
}

// findStarts finds when each call counts in its process's share. A call that is repeated counts once, as its process first
// charged it: at once if that was locally, and when it starts if the store admitted it.
func (s *simulation) findStarts() {
	first := make(map[uint64][2]time.Time) // when it was charged, and for which instant
	for i := range s.calls {
		c := &s.calls[i]
		c.counts = c.ended.Truncate(time.Microsecond).Add(c.res.Delay)
		charged := c.counts
		if c.res.Source == driver.FromLocal {
			charged = c.ended
		}
		if before, ok := first[c.id]; c.once && c.err == nil && c.res.Allowed && (!ok || charged.Before(before[0])) {
			first[c.id] = [2]time.Time{charged, c.counts}
		}
	}
	for i := range s.calls {
		if charge, ok := first[s.calls[i].id]; ok {
			s.calls[i].counts = charge[1]
		}
	}
}

// judgeLocal checks that a process admitted locally no more than its share, with what it knew of, and that
// nothing was written to the store twice.
func (s *simulation) judgeLocal(process, key string) {
	var owed int64
	for i, c := range s.calls {
		if c.process == process && c.has(key) && c.left() {
			owed += c.cost // perhaps
		}
		if c.process != process || !c.has(key) || !c.admitted(driver.FromLocal) {
			continue
		}
		if _, charged := s.server.admissions[c.id]; !charged {
			owed += c.cost
		}
		for _, l := range s.limits {
			share, units := l.Units/int64(s.instances), int64(0)
			for j, d := range s.calls {
				if d.process != process || !d.has(key) || !d.counts.After(c.counts.Add(-l.Window)) || d.counts.After(c.counts) {
					continue
				}
				known := d.admitted(driver.FromStore) && d.ended.Add(d.res.Delay).Before(c.ended) && !s.forgot(&d, c.ended)
				if d.admitted(driver.FromLocal) {
					known = j <= i && !s.forgot(&d, c.ended) || j > i && !s.forgot(&c, d.ended)
				}
				if known {
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

// left reports whether the caller of a booking left. It may have been admitted locally after that, and given back.
func (c *simCall) left() bool { return c.within > 0 && errors.Is(c.err, context.DeadlineExceeded) }

func (c *simCall) has(key string) bool { return slices.Contains(c.keys, key) }

func (c *simCall) admitted(by sash.Source) bool {
	return c.err == nil && c.res.Allowed && c.res.Source == by && !c.repeats
}
