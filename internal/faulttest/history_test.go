package faulttest

import (
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
	raised := make([]sash.Limit, len(limits))
	for i, l := range limits {
		raised[i] = sash.Every(l.Units*times, l.Window)
	}
	if err := judge.CheckHistory(raised, h.admitted().decisions()); err != nil {
		t.Errorf("more than %d times the limit: %v", times, err)
	}
}

// refusesTruly reports refusals of calls that there was room for. It is for histories without failures.
func (h history) refusesTruly(t testing.TB, limits ...sash.Limit) {
	t.Helper()
	if err := judge.CheckRefusals(limits, h.admitted().decisions(), h.refused().decisions()); err != nil {
		t.Error(err)
	}
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

// isExact reports anything that a healthy server would not have done, where every failure is known to
// have charged nothing.
func (h history) isExact(t testing.TB, used int64, limits ...sash.Limit) {
	t.Helper()
	h.keepsTo(t, 1, limits...)
	h.refusesTruly(t, limits...)
	if admitted := h.admitted().units(); used != admitted {
		t.Errorf("%d units were admitted and %d are charged", admitted, used)
	}
}
