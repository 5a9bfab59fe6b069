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
// and no others: who asks when the answer to another has arrived does not start before it.
func (all bookings) inversions() (overtaken bookings) {
	places := make([]judge.Booking, len(all))
	for i, b := range all {
		places[i] = judge.Booking{Asked: b.Asked, Answered: b.Answered, At: b.At}
	}
	for _, i := range judge.Overtaken(places) {
		overtaken = append(overtaken, all[i])
	}
	return overtaken
}

// isInOrder reports bookings that were overtaken.
func (all bookings) isInOrder(t testing.TB) {
	t.Helper()
	if bad := all.inversions(); len(bad) > 0 {
		t.Errorf("%d of %d bookings were overtaken by one that asked after they had their answer, such as %+v", len(bad), len(all), bad[0])
	}
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
	raised := slices.Clone(limits)
	for i := range raised {
		raised[i].Units *= times
	}
	if err := judge.CheckHistory(raised, all.admissions()); err != nil {
		t.Errorf("more than %d times the limit: %v", times, err)
	}
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
	var late time.Duration
	for _, b := range all.started() {
		late = max(late, time.Duration(b.Started-b.At)*time.Microsecond)
	}
	left, failed := all.where(func(b booking) bool { return b.Left }), all.where(func(b booking) bool { return b.Failed != "" })
	t.Logf("%d answered, %d started, at most %v after their instant, %d left, %d failed",
		len(all.answered()), len(all.started()), late, len(left), len(failed))
}
