package faulttest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/judge"
)

// A history is calls in any order.
type history []call

// where returns the calls that something holds of.
func (h history) where(holds func(call) bool) history {
	var some history
	for _, c := range h {
		if holds(c) {
			some = append(some, c)
		}
	}
	return some
}

func (h history) admitted() history {
	return h.where(func(c call) bool { return c.err == nil && c.Allowed })
}
func (h history) refused() history {
	return h.where(func(c call) bool { return c.err == nil && !c.Allowed })
}
func (h history) failed() history { return h.where(func(c call) bool { return c.err != nil }) }

// before and after cut a history in two by the instant of each decision. Calls that failed have none.
func (h history) before(at time.Time) history {
	return h.where(func(c call) bool { return c.At.Before(at) })
}
func (h history) after(at time.Time) history {
	return h.where(func(c call) bool { return !c.At.Before(at) })
}

// units returns what the calls asked for.
func (h history) units() int64 {
	var sum int64
	for _, c := range h {
		sum += c.cost
	}
	return sum
}

// decisions returns the calls for the checker.
func (h history) decisions() []judge.Call {
	var all []judge.Call
	for _, c := range h {
		all = append(all, judge.Call{At: c.At, Cost: c.cost})
	}
	return all
}

// keepsTo reports windows that hold more than their limit: times is 1, and one more for each loss of state.
func (h history) keepsTo(t testing.TB, times int64, limits ...sash.Limit) {
	t.Helper()
	keep(t, times, limits, h.admitted().decisions())
}

func keep(t testing.TB, times int64, limits []sash.Limit, calls []judge.Call) {
	t.Helper()
	raised := slices.Clone(limits)
	for i := range raised {
		raised[i].Units *= times
	}
	if err := judge.CheckHistory(raised, calls); err != nil {
		t.Errorf("more than %d times the limit: %v", times, err)
	}
}

// losesStateOnce reports windows that hold more than their limit before a loss of state or after it, or twice as much over both.
func losesStateOnce(t testing.TB, before, after, all history) {
	t.Helper()
	before.keepsTo(t, 1, limits...)
	after.keepsTo(t, 1, limits...)
	all.keepsTo(t, 2, limits...)
}

// charged reports a subject whose charges cannot come from these calls, each made once.
func (h history) charged(t testing.TB, used int64) {
	t.Helper()
	least, most := h.admitted().units(), h.admitted().units()+h.failed().units()
	if used < least || used > most {
		t.Errorf("%d units are charged; %d were admitted and %d may be", used, least, most-least)
	}
}

// log logs what was seen, for the table in docs/guarantees.md.
func (h history) log(t testing.TB, text string, args ...any) {
	t.Helper()
	t.Logf("%d calls: %d units admitted, %d refused, %d failed", len(h), h.admitted().units(), len(h.refused()), len(h.failed()))
	t.Logf(text, args...)
}

// isExact reports anything that a healthy server would not have done, where every failure is known to have charged nothing.
func (h history) isExact(t testing.TB, used int64, limits ...sash.Limit) {
	t.Helper()
	h.keepsTo(t, 1, limits...)
	if err := judge.CheckRefusals(limits, h.admitted().decisions(), h.refused().decisions()); err != nil {
		t.Error(err)
	}
	if admitted := h.admitted().units(); used != admitted {
		t.Errorf("%d units were admitted and %d are charged", admitted, used)
	}
}

// Bookings are what waiters of several processes saw, in any order.
type bookings []booking

func (all bookings) where(holds func(booking) bool) bookings {
	return slices.DeleteFunc(slices.Clone(all), func(b booking) bool { return !holds(b) })
}

func (all bookings) answered() bookings { return all.where(func(b booking) bool { return b.At > 0 }) }

func (all bookings) started() bookings {
	return all.where(func(b booking) bool { return b.Started > 0 && b.Failed == "" })
}

// inversions returns the bookings that were overtaken. The network reorders those that are on their way at the same time,
// and no others: a caller that asks when the answer to another has arrived does not start before it.
func (all bookings) inversions() bookings {
	return all.where(func(b booking) bool {
		return slices.ContainsFunc(all, func(other booking) bool { return other.Asked > b.Answered && other.At < b.At })
	})
}

// isInOrder reports bookings that were overtaken.
func (all bookings) isInOrder(t testing.TB) {
	t.Helper()
	if bad := all.inversions(); len(bad) > 0 {
		t.Errorf("%d of %d bookings were overtaken by one that asked after they had their answer, such as %+v", len(bad), len(all), bad[0])
	}
}

// startInOrder returns an error if a caller of a queue that waited was overtaken by one that asked later: by the store's clock, and
// by that of the callers, for a place may have begun when its answer arrives.
func (all bookings) startInOrder() error {
	for _, b := range all.inversions() {
		for _, other := range all {
			if other.Asked > b.Waits && other.At < b.At && other.Started < b.Started {
				return fmt.Errorf("%+v was overtaken by %+v", b, other)
			}
		}
	}
	return nil
}

// late returns by how much a caller started after its instant, at the most.
func (all bookings) late() (late time.Duration) {
	for _, b := range all.started() {
		late = max(late, time.Duration(b.Started-b.At)*time.Microsecond)
	}
	return late
}

func (all bookings) admissions() (a []judge.Call) {
	for _, b := range all {
		a = append(a, judge.Call{At: time.UnixMicro(b.At), Cost: b.Cost})
	}
	return a
}

// keepsTo reports windows of the server's clock that hold more than so many times their limit.
func (all bookings) keepsTo(t testing.TB, times int64, limits ...sash.Limit) {
	t.Helper()
	keep(t, times, limits, all.admissions())
}

// due returns an error if a caller started before its place, or a place is later than it has to be.
func (all bookings) due(limits ...sash.Limit) error {
	for _, b := range all.started() {
		if b.Started < b.At {
			return fmt.Errorf("a caller started %d µs before its place: %+v", b.At-b.Started, b)
		}
	}
	// Nobody waits for nothing: a microsecond earlier there was no room for the first of those that start together, which
	// costs no more than the dearest of them.
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b booking) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Cost, b.Cost)) })
	var refused []judge.Call
	for i, b := range all {
		if last := i+1 == len(all) || all[i+1].At > b.At; last && b.Delay > 0 {
			refused = append(refused, judge.Call{At: time.UnixMicro(b.At - 1), Cost: b.Cost})
		}
	}
	return judge.CheckRefusals(limits, all.admissions(), refused)
}

// log logs what was seen, for docs/guarantees.md.
func (all bookings) log(t testing.TB) {
	t.Helper()
	left, failed := all.where(func(b booking) bool { return b.Left }), all.where(func(b booking) bool { return b.Failed != "" })
	t.Logf("%d answered, %d started, at most %v after their instant, %d left, %d failed",
		len(all.answered()), len(all.started()), all.late(), len(left), len(failed))
}
