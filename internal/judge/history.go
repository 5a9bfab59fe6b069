// Package judge checks decisions against the definition of a limit. In a [History] of calls, no window may hold more units
// than the limit, no refusal may be needless, and every wait must be the shortest. [Fullest] finds the most units in any
// window, even if the instants are uncertain. The tests and sash verify use both.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A Call is a decided call on one subject. The zero values of Refused and Wait make it an admission.
type Call struct {
	At      time.Time // when it was decided or, if admitted, from when it counts: sash.Result.At
	Cost    int64
	Refused bool
	Wait    time.Duration // of a refusal: RetryAfter
}

// An Unknown is a call without an answer. It may have been charged at any time after After, or never.
type Unknown struct {
	After time.Time
	Cost  int64
}

// A History is all calls on one subject, in any order, on the clock that decided them. Calls at the same instant may have
// been decided in any order. So refusals get the benefit of the doubt; admissions do not need it.
type History struct {
	Limits  []sash.Limit
	Hold    time.Duration // how much longer than the window a unit may be held: the resolution
	Calls   []Call
	Unknown []Unknown
}

// A Window is a trailing window, or a period of the calendar, that holds more than its limit's units.
type Window struct {
	Limit sash.Limit
	Units int64
	Ends  time.Time // the instant of its last admission
}

// A Refusal is a refusal that was false or returned a wrong wait.
type Refusal struct {
	At          time.Time
	Cost        int64
	Said        time.Duration
	Least, Most time.Duration // the bounds that the history allows; equal if the order of calls is known
}

// Findings are the violations in a history. The zero value means none.
type Findings struct {
	Over          *Window  // the window that exceeds its limit most
	OverAdmitted  int      // admissions that brought a window above its limit
	False         *Refusal // the first false refusal
	FalseRefusals int      // refusals although every limit had room
	Wrong         *Refusal // the first refusal with a wrong wait
	WrongWaits    int      // refusals whose wait is not the shortest; not counted under calendar limits
	// Doubtful counts refusals after a call without an answer. The call's units may have been charged. So such a refusal
	// counts as false only if there was room beside these units, and its wait as wrong only if it is too short.
	Doubtful int
}

// Kept reports whether there are no violations.
func (f Findings) Kept() bool { return f.OverAdmitted+f.FalseRefusals+f.WrongWaits == 0 }

// CheckHistory returns nil if the admissions keep every limit, and otherwise an error that names the fullest window. The
// admissions must be all charges of the subject.
func CheckHistory(limits []sash.Limit, admissions []Call) error {
	f := (&History{Limits: limits, Calls: slices.Clone(admissions)}).Check()
	if f.Over == nil {
		return nil
	}
	return fmt.Errorf("%s: %d units were admitted in the window that ends at %s", f.Over.Limit, f.Over.Units, f.Over.Ends.Format(time.RFC3339Nano))
}

// CheckRefusals returns nil if every refusal was right: some limit had no room for it. It does not look at waits.
func CheckRefusals(limits []sash.Limit, admissions, refusals []Call) error {
	h := History{Limits: limits, Calls: slices.Clone(admissions)}
	for _, c := range refusals {
		c.Refused = true
		h.Calls = append(h.Calls, c)
	}
	if f := h.Check(); f.False != nil {
		return fmt.Errorf("a call of %d units was refused at %s, but every limit had room: %v", f.False.Cost, f.False.At.Format(time.RFC3339Nano), limits)
	}
	return nil
}

// Check checks the history. It sorts Calls and Unknown.
func (h *History) Check() (f Findings) {
	slices.SortStableFunc(h.Calls, func(a, b Call) int { return a.At.Compare(b.At) })
	slices.SortFunc(h.Unknown, func(a, b Unknown) int { return a.After.Compare(b.After) })
	var charges []Charge
	for _, c := range h.Calls {
		if !c.Refused {
			charges = append(charges, Charge{From: c.At.UnixNano(), To: c.At.UnixNano(), Units: c.Cost})
		}
	}
	l := timelineOf(charges, func(c Charge) int64 { return c.To })
	for _, limit := range h.Limits {
		over, full := fullest(l, l, limit.Units, func(at int64) int64 { return left(limit, at, 0) })
		f.OverAdmitted += over
		if full.Units > limit.Units && (f.Over == nil || full.Units-limit.Units > f.Over.Units-f.Over.Limit.Units) {
			f.Over = &Window{Limit: limit, Units: full.Units, Ends: time.Unix(0, full.To)}
		}
	}
	h.checkRefusals(&l, &f)
	return f
}

func (h *History) checkRefusals(l *timeline, f *Findings) {
	calendar := slices.ContainsFunc(h.Limits, func(l sash.Limit) bool { return l.Period != 0 })
	var unknown int64 // units that may have been charged by now
	next := 0
	for _, c := range h.Calls {
		for next < len(h.Unknown) && !h.Unknown[next].After.After(c.At) {
			unknown += h.Unknown[next].Cost
			next++
		}
		if !c.Refused {
			continue
		}
		if unknown > 0 {
			f.Doubtful++
		}
		// The units of the same instant may have come before the refusal or after it.
		least := h.wait(l, c, l.upTo(c.At.UnixNano()-1), 0, 0)
		most := h.wait(l, c, l.upTo(c.At.UnixNano()), unknown, h.Hold)
		switch {
		case most == 0:
			note(&f.False, &f.FalseRefusals, c, least, most)
		case !calendar && (c.Wait < least || c.Wait > most && unknown == 0):
			note(&f.Wrong, &f.WrongWaits, c, least, most)
		}
	}
}

// wait returns the shortest time after which a call fits. It counts the admissions before index end, and more further units
// charged just now. Units stay for hold longer than their window.
func (h *History) wait(l *timeline, c Call, end int, more int64, hold time.Duration) (longest time.Duration) {
	now := c.At.UnixNano()
	for _, limit := range h.Limits {
		first := min(l.upTo(left(limit, now, hold)), end)
		over := l.sums[end] - l.sums[first] + more + c.Cost - limit.Units // units that have to leave
		if over <= 0 {
			continue
		}
		// The first admission at which that many have left.
		n := first + sort.Search(end-first, func(i int) bool { return l.sums[first+i+1]-l.sums[first] >= over })
		at := now
		if n < end {
			at = l.times[n]
		}
		longest = max(longest, time.Duration(at-left(limit, now, hold)))
	}
	return longest
}

func note(example **Refusal, count *int, c Call, least, most time.Duration) {
	*count++
	if *example == nil {
		*example = &Refusal{At: c.At, Cost: c.Cost, Said: c.Wait, Least: least, Most: most}
	}
}

// left returns the latest instant whose charges no longer count at now. A charge made exactly a window ago does not.
func left(l sash.Limit, now int64, hold time.Duration) int64 {
	if l.Period == 0 {
		return now - int64(l.Window+hold)
	}
	period := driver.Limit{Period: l.Period, Zone: cmp.Or(l.Zone, time.UTC)}
	start, _ := period.Bounds(time.Unix(0, now).UnixMicro())
	return start*1000 - 1
}

// A Charge is units that were admitted at an instant from From to To, both included, in any unit of time. If the instant
// is known, the two are equal.
type Charge struct{ From, To, Units int64 }

// Fullest returns the window (To-length, To] with the most units that certainly were in it: even at their earliest instant
// they are after its beginning, and at their latest before its end. So it counts too few rather than too many. It ignores
// charges uncertain by a window or more. over counts the charges at whose end a window certainly held more than the limit.
func Fullest(charges []Charge, length, limit int64) (full Charge, over int) {
	charges = slices.DeleteFunc(slices.Clone(charges), func(c Charge) bool { return c.To-c.From >= length })
	begun, ended := timelineOf(charges, func(c Charge) int64 { return c.From }), timelineOf(charges, func(c Charge) int64 { return c.To })
	over, full = fullest(begun, ended, limit, func(at int64) int64 { return at - length })
	full.From = full.To - length
	return full, over
}

// fullest looks at every window that ends with a charge, because the use only falls between charges. It does not count a
// charge that may lie before the window. Such a charge has ended before the window ends.
func fullest(begun, ended timeline, limit int64, left func(int64) int64) (over int, full Charge) {
	for i, at := range ended.times {
		gone := begun.sums[begun.upTo(left(at))]
		if ended.sums[i+1]-gone > limit {
			over++
		}
		if units := ended.sums[ended.upTo(at)] - gone; units > full.Units {
			full = Charge{To: at, Units: units}
		}
	}
	return over, full
}

// Needless returns the first refused call that certainly had room under every limit, even if all calls with an unknown
// outcome were charged. had counts such calls. From and To of a refused call are when it was sent and answered.
func Needless(limits []sash.Limit, admitted, unknown, refused []Charge) (first *Refusal, had int) {
	begun := timelineOf(slices.Concat(admitted, unknown), func(c Charge) int64 { return c.From })
	ended := timelineOf(slices.Clone(admitted), func(c Charge) int64 { return c.To })
	for _, c := range slices.SortedFunc(slices.Values(refused), func(a, b Charge) int { return cmp.Compare(a.From, b.From) }) {
		full := func(l sash.Limit) bool {
			return begun.sums[begun.upTo(c.To)]-ended.sums[ended.upTo(c.From-int64(l.Window))]+c.Units > l.Units
		}
		if !slices.ContainsFunc(limits, full) {
			note(&first, &had, Call{At: time.Unix(0, c.From), Cost: c.Units}, 0, 0)
		}
	}
	return first, had
}

// A timeline is charges by time. The sum at i counts the units before charge i.
type timeline struct{ times, sums []int64 }

func timelineOf(charges []Charge, at func(Charge) int64) timeline {
	l := timeline{sums: []int64{0}}
	slices.SortStableFunc(charges, func(a, b Charge) int { return cmp.Compare(at(a), at(b)) })
	for _, c := range charges {
		l.times = append(l.times, at(c))
		l.sums = append(l.sums, l.sums[len(l.sums)-1]+c.Units)
	}
	return l
}

func (l *timeline) upTo(instant int64) int {
	return sort.Search(len(l.times), func(i int) bool { return l.times[i] > instant })
}

// A Clock stands still until Advance moves it. It is safe for concurrent use.
type Clock struct {
	now atomic.Int64 // microseconds
}

// NewClock returns a clock at the given time.
func NewClock(t time.Time) *Clock {
	c := new(Clock)
	c.now.Store(t.UnixMicro())
	return c
}

// Now returns the time of the clock, in whole microseconds.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.now.Load()) }

// Advance moves the clock, back if d is negative.
func (c *Clock) Advance(d time.Duration) { c.now.Add(d.Microseconds()) }
