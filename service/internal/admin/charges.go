package admin

import (
	"cmp"
	"net/http"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/wire"
)

// A Charge is units that a log holds, and when they were charged.
type Charge struct {
	At    time.Time
	Units int64
}

// Charges is what a log holds at an instant of the store's clock.
type Charges struct {
	At      time.Time
	Entries []Charge // the oldest first
}

// mostCharges is the most entries of an answer; more are merged with their neighbours.
const mostCharges = 2000

type charge struct {
	At    wire.Instant `json:"at"`
	Units int64        `json:"units"`
}

// A span is the part of the time axis that a limit counts.
type span struct {
	Name  string        `json:"name"`
	From  wire.Instant  `json:"from"`  // what was charged then or before does not count
	Until *wire.Instant `json:"until"` // when all leaves at once, of calendar limits
}

// A history is what a subject was charged, and when.
type history struct {
	Subject   string        `json:"subject"`
	At        *wire.Instant `json:"at"`
	Algorithm *string       `json:"algorithm"`
	Limits    []span        `json:"limits"`
	// Entries are null where they are not known, and Why says the reason. Count is how many the store has, and Merged
	// the step within which they are merged, at the latest of their times, because they are many.
	Entries []charge     `json:"entries"`
	Count   int          `json:"count"`
	Merged  wire.Seconds `json:"merged"`
	Why     *string      `json:"why"`
}

// charges answers what a subject was charged and when, as far as its key remembers.
func (h *handler) charges(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := bounded(r)
	defer cancel()
	_, state, ok := h.stateOf(ctx, w, r)
	if !ok {
		return
	}
	answer := history{Subject: state.Found.Key, At: wire.When(state.Answer.At), Limits: []span{}}
	policy, at := state.Policy, state.Answer.At
	switch why := h.unknown(policy); {
	case why != "":
		answer.Why = &why
	default:
		all, err := h.Charges(ctx, state.Found.Key, policy)
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		if !all.At.IsZero() {
			at = all.At
			answer.At = wire.When(at)
		}
		answer.Count = len(all.Entries)
		answer.Entries, answer.Merged = merge(all.Entries)
	}
	if policy != nil {
		name := policy.Algorithm.String()
		answer.Algorithm, answer.Limits = &name, spans(state.Limits, policy, at)
	}
	wire.Write(w, http.StatusOK, answer)
}

// unknown returns why the entries are not known; empty when they are.
func (h *handler) unknown(policy *driver.Policy) string {
	switch {
	case policy == nil:
		return "nothing is counted for this subject"
	case h.Charges == nil:
		return "this service does not read the logs of its store"
	}
	switch policy.Algorithm {
	case sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets:
		return ""
	}
	return policy.Algorithm.String() + " keeps counts, and no log of charges"
}

func spans(limits []sash.Limit, policy *driver.Policy, at time.Time) []span {
	out := []span{}
	if at.IsZero() {
		return out
	}
	for i, l := range policy.Limits {
		cut, stop := l.Cut(at.UnixMicro())
		s := span{Name: cmp.Or(limits[i].Name, limits[i].String()), From: wire.Instant(time.UnixMicro(cut))}
		if stop != 0 {
			s.Until = wire.When(time.UnixMicro(stop))
		}
		out = append(out, s)
	}
	return out
}

// merge puts neighbours together until there are mostCharges at most, at the latest of their times: then nothing
// seems to leave the window earlier than it does.
func merge(all []Charge) ([]charge, wire.Seconds) {
	out := []charge{}
	var step time.Duration
	if n := len(all); n > mostCharges {
		step = (all[n-1].At.Sub(all[0].At)/(mostCharges-1) + time.Microsecond).Truncate(time.Microsecond)
	}
	last := int64(-1)
	for _, c := range all {
		slot := int64(len(out))
		if step > 0 {
			slot = int64(c.At.Sub(all[0].At) / step)
		}
		if slot == last {
			before := &out[len(out)-1]
			before.At, before.Units = wire.Instant(c.At), before.Units+c.Units
			continue
		}
		last = slot
		out = append(out, charge{wire.Instant(c.At), c.Units})
	}
	return out, wire.Seconds(step)
}
