package admin

import (
	"cmp"
	"net/http"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// A Charge is the units that were charged at one time.
type Charge struct {
	At    time.Time
	Units int64
}

// Charges is the content of a log at an instant of the store's clock.
type Charges struct {
	At      time.Time
	Entries []Charge // the oldest first
}

// mostCharges is the most entries of an answer. More are merged with their neighbors.
const mostCharges = 2000

type charge struct {
	At    wire.Instant `json:"at"`
	Units int64        `json:"units"`
}

// A span is the part of the time axis that a limit counts.
type span struct {
	Name  string        `json:"name"`
	From  wire.Instant  `json:"from"`  // charges at this time or before do not count
	Until *wire.Instant `json:"until"` // of calendar limits: when the window ends
}

// A history is the charges of a subject.
type history struct {
	Subject   string        `json:"subject"`
	At        *wire.Instant `json:"at"`
	Algorithm *string       `json:"algorithm"`
	Limits    []span        `json:"limits"`
	// Entries are null if they are unknown, and Why is the reason. Count is the number in the store. If there are too
	// many, entries within the step Merged are one, at the latest of their times.
	Entries []charge     `json:"entries"`
	Count   int          `json:"count"`
	Merged  wire.Seconds `json:"merged"`
	Why     *string      `json:"why"`
}

// charges answers the charges of a subject that its key still holds.
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
	case state.Answer.Cause != nil:
		why = "the store does not answer (" + decide.Cause(state.Answer.Cause) + ")"
		answer.At, answer.Why, at = nil, &why, time.Time{}
	default:
		all, err := h.Charges(ctx, placeOf(state.Found.Rule), state.Found.Key, policy)
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

// placeOf returns where the charges of a rule are kept; nil is that of a request limit.
func placeOf(r *config.Rule) config.Place {
	if r == nil {
		return config.Place{}
	}
	return r.Place
}

// unknown returns why the charges are unknown, or "".
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

// merge merges neighbors into at most mostCharges entries, at the latest of their times, so that no charge seems to
// leave the window earlier than it does.
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
