package replay

import (
	"errors"
	"fmt"
	"time"

	"example.com/sash"
)

// holdOutWindows is how often each part of a hold-out must know the long window: a part of fewer windows says little.
const holdOutWindows = 3

// A HoldOut is a proposal that was made on the first part of a log, and what it does to the rest, which it has not seen.
// Each part begins with empty windows.
type HoldOut struct {
	// Percent is the part of the time, and Until its end.
	Percent int          `json:"percent"`
	Until   time.Time    `json:"until"`
	Limits  []sash.Limit `json:"limits"`
	First   Judged       `json:"first"`
	Rest    Judged       `json:"rest"`
}

// Judged is what a pair of limits does to a part of a log.
type Judged struct {
	Requests     int64   `json:"requests"`
	Refused      int64   `json:"refused"`
	RefusedShare float64 `json:"refused_share"`
	Clients      int     `json:"clients"`
	Limited      int     `json:"clients_limited"`
	LimitedShare float64 `json:"clients_limited_share"`
}

// ErrTooShort means that a log, or a part of one, is too short for a judgement.
var ErrTooShort = errors.New("too short")

// HoldOut proposes limits for the first part of the trace and judges them on the rest. The error is [ErrTooShort] if
// either part is.
func (t *Trace) HoldOut(caps Caps, burst, sustained time.Duration) (*HoldOut, error) {
	from, last := t.Span()
	h := &HoldOut{Percent: 70, Until: from.Add(last.Sub(from) / 100 * 70)}
	coverage := t.Coverage()
	var parts [2]*Trace
	for i, ends := range [][2]time.Time{{from, h.Until}, {h.Until, last.Add(time.Microsecond)}} {
		parts[i] = t.between(ends[0], ends[1])
		own := *coverage
		own.events = parts[i].events
		if n := own.Windows(sustained); n < holdOutWindows {
			return nil, fmt.Errorf("%w: from %s to %s the log covers a window of %s %d times, and %d are needed",
				ErrTooShort, ends[0].Format(time.RFC3339), ends[1].Format(time.RFC3339), WindowName(sash.Every(1, sustained)), n, holdOutWindows)
		}
	}
	s, err := parts[0].Suggest(caps, burst, sustained)
	if err != nil {
		return nil, err
	}
	h.Limits, h.First = s.Limits, parts[0].judged(s.Refused, s.Affected)
	h.Rest = parts[1].judge(s.Limits)
	return h, nil
}

// judge counts what a pair of limits refuses.
func (t *Trace) judge(pair []sash.Limit) Judged {
	s := t.measure(pair[0].Window, pair[1].Window)
	units := [2]int64{pair[0].Units, pair[1].Units}
	return t.judged(s.refuses(t.refusable(s, units), units))
}

func (t *Trace) judged(refused int64, limited int) Judged {
	j := Judged{Requests: t.counts.Requests, Refused: refused, Clients: len(t.clients), Limited: limited}
	j.RefusedShare, j.LimitedShare = share(refused, j.Requests), share(int64(limited), int64(j.Clients))
	return j
}
