package verify

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"example.com/sash"
)

// A call is a decided call.
type call struct {
	At      int64 // when it was decided, in microseconds since the Unix epoch
	Cost    int64
	Wait    int64 // for a refusal: RetryAfter in microseconds
	Allowed bool
}

// An unknown is a call without an answer. It may have been charged at any time after After, or never. Its caller did not
// learn of an admission.
type unknown struct {
	After int64
	Cost  int64
}

// A history is all calls on one subject, in any order. It does not depend on algorithms or stores. All times are by the
// clock that decided, in microseconds.
type history struct {
	Limits  []sash.Limit  // sliding ones
	Hold    time.Duration // how much longer than the window a unit may be held: the resolution
	Calls   []call
	Unknown []unknown
}

// A Window is a trailing window that holds more than its limit's units.
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
	WrongWaits    int      // refusals whose wait is not the shortest
	// Doubtful counts refusals after a call without an answer. Its units may have been charged, so such a refusal counts
	// as false only if there was room beside them, and its wait as wrong only if it is too short.
	Doubtful int
}

// Kept reports whether there are no violations.
func (f Findings) Kept() bool { return f.OverAdmitted+f.FalseRefusals+f.WrongWaits == 0 }

// check checks the history. It sorts Calls and Unknown. Calls in the same microsecond may have been decided in
// any order. It gives refusals the benefit of the doubt; admissions do not need it. The same goes for refusals after
// a call without an answer, which may have been charged.
func (h *history) check() Findings {
	slices.SortFunc(h.Calls, func(a, b call) int { return cmp.Compare(a.At, b.At) })
	slices.SortFunc(h.Unknown, func(a, b unknown) int { return cmp.Compare(a.After, b.After) })
	l := log{sums: []int64{0}}
	for _, c := range h.Calls {
		if c.Allowed {
			l.times = append(l.times, c.At)
			l.sums = append(l.sums, l.sums[len(l.sums)-1]+c.Cost)
		}
	}
	var f Findings
	for _, limit := range h.Limits {
		h.checkWindows(&l, limit, &f)
	}
	h.checkRefusals(&l, &f)
	return f
}

// A log is the admissions by time. The sum at i counts the units before admission i.
type log struct {
	times []int64
	sums  []int64
}

// after returns the first admission later than an instant.
func (l *log) after(instant int64) int {
	return sort.Search(len(l.times), func(i int) bool { return l.times[i] > instant })
}

// checkWindows checks every window that ends at an admission. Other windows hold no more, because use only falls between
// admissions.
func (h *history) checkWindows(l *log, limit sash.Limit, f *Findings) {
	first := 0
	for i, at := range l.times {
		for l.times[first] <= at-limit.Window.Microseconds() {
			first++
		}
		units := l.sums[i+1] - l.sums[first]
		if units <= limit.Units {
			continue
		}
		f.OverAdmitted++
		if f.Over == nil || units-limit.Units > f.Over.Units-f.Over.Limit.Units {
			f.Over = &Window{Limit: limit, Units: units, Ends: time.UnixMicro(at)}
		}
	}
}

func (h *history) checkRefusals(l *log, f *Findings) {
	var unknown int64 // units that may have been charged by now
	next := 0
	for _, c := range h.Calls {
		for next < len(h.Unknown) && h.Unknown[next].After <= c.At {
			unknown += h.Unknown[next].Cost
			next++
		}
		if c.Allowed {
			continue
		}
		if unknown > 0 {
			f.Doubtful++
		}
		// The units of the same microsecond may have come before the refusal or after it.
		least := h.wait(l, c, l.after(c.At-1), 0, 0)
		most := h.wait(l, c, l.after(c.At), unknown, h.Hold)
		switch {
		case most == 0:
			note(&f.False, &f.FalseRefusals, c, least, most)
		case c.Wait < least || c.Wait > most && unknown == 0:
			note(&f.Wrong, &f.WrongWaits, c, least, most)
		}
	}
}

// wait returns the shortest time after which a call fits, given the admissions before index end, more further units that
// were charged just now, and units that are held for hold longer than their window.
func (h *history) wait(l *log, c call, end int, more int64, hold time.Duration) int64 {
	var longest int64
	for _, limit := range h.Limits {
		window := (limit.Window + hold).Microseconds()
		first := min(l.after(c.At-window), end)
		over := l.sums[end] - l.sums[first] + more + c.Cost - limit.Units // units that have to leave
		if over <= 0 {
			continue
		}
		// The first admission at which that many have left.
		n := first + sort.Search(end-first, func(i int) bool { return l.sums[first+i+1]-l.sums[first] >= over })
		at := c.At
		if n < end {
			at = l.times[n]
		}
		longest = max(longest, at+window-c.At)
	}
	return longest
}

func note(example **Refusal, count *int, c call, least, most int64) {
	*count++
	if *example == nil {
		*example = &Refusal{
			At: time.UnixMicro(c.At), Cost: c.Cost, Said: time.Duration(c.Wait) * time.Microsecond,
			Least: time.Duration(least) * time.Microsecond, Most: time.Duration(most) * time.Microsecond,
		}
	}
}
