package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/wire"
)

// stateOf returns the subject that a query names, and its state. If the store does not answer, the answer of the state
// has the source policy and the cause. StateOf answers a wrong request itself, and returns false.
func (h *handler) stateOf(ctx context.Context, w http.ResponseWriter, r *http.Request) (of wire.Subject, state decide.State, ok bool) {
	of, err := subjectOf(r)
	if err != nil {
		wire.Fail(w, http.StatusBadRequest, err.Error()+", as in ?domain=d&entry=user:ann")
		return of, state, false
	}
	state, err = h.decider.State(ctx, of.Domain, of.Entries)
	if errors.Is(err, sash.ErrUnavailable) && !errors.Is(err, driver.ErrRejected) {
		state.Answer.Source, state.Answer.Cause, err = sash.FromPolicy, err, nil
	}
	if err != nil {
		h.refuse(w, r, err)
		return of, state, false
	}
	return of, state, true
}

// subject answers the state of a subject. It charges nothing.
func (h *handler) subject(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := bounded(r)
	defer cancel()
	of, state, ok := h.stateOf(ctx, w, r)
	if !ok {
		return
	}
	overridden := config.Key(of.Domain, state.Entries)
	if o := state.Override; o != nil { // of values charged together, or under an older name
		overridden = config.Key(o.Domain, o.Entries)
	}
	answer := map[string]any{
		"subject": cmp.Or(state.Found.Key, config.Key(of.Domain, state.Entries)), "domain": of.Domain, "entries": state.Entries, "rule": nil,
		"limits": h.usage(&state), "at": nil, "source": nil, "cause": nil, "store": h.state(true),
		"override": h.one(exceptions.Override, overridden), "ban": nil, "blocked_until": wire.When(state.BlockedUntil()),
	}
	if source := state.Answer.Source; state.Policy != nil {
		answer["source"] = source.String()
		if source != sash.FromPolicy { // whose time is not a store's
			answer["at"] = wire.When(state.Answer.At)
		}
		if cause := state.Answer.Cause; cause != nil {
			answer["cause"] = decide.Cause(cause)
		}
	}
	if ban := state.Ban; ban != nil { // of a network, or of the first entries
		answer["ban"] = h.one(exceptions.Ban, config.Key(ban.Domain, ban.Entries))
	}
	if rule := state.Found.Rule; rule != nil {
		answer["rule"] = ruleOf(rule)
	}
	wire.Write(w, http.StatusOK, answer)
}

// one returns the exception of a kind on a subject, or nil.
func (h *handler) one(kind exceptions.Kind, subject string) *exception {
	for _, e := range h.Exceptions.List(kind) {
		if e.Subject() == subject {
			out := h.exception(e)
			return &out
		}
	}
	return nil
}

// reset removes the charges of a subject.
func (h *handler) reset(w http.ResponseWriter, r *http.Request) {
	of := read[wire.Subject](w, r)
	if of == nil {
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	if err := h.decider.Reset(ctx, of.Domain, of.Entries); err != nil {
		h.refuse(w, r, err)
		return
	}
	named, _ := h.decider.Named(of.Domain, of.Entries) // after a reset there is nothing wrong with them
	subject := config.Key(of.Domain, named)
	h.Log.Info("admin: a subject was reset", "subject", subject, "by", h.Guard.by(r))
	wire.Write(w, http.StatusOK, map[string]string{"subject": subject})
}

// A usage is a limit of a subject with what is used of it. A number that is not known is null.
type usage struct {
	wire.Limit
	Remaining *int64 `json:"remaining"`
	// Share is the units that this instance may admit alone while the store does not answer, and Used is of them. Share is
	// absent otherwise. Used is null where it cannot be known: of a blocked subject, and of a rule with own shares of regions.
	Share *int64 `json:"share,omitempty"`
	Used  *int64 `json:"used"`
	// ReleaseAfter is the time until the next unit is free, and ResetAfter until all are.
	ReleaseAfter *wire.Seconds `json:"release_after"`
	ResetAfter   *wire.Seconds `json:"reset_after"`
}

// usage returns the limits of a subject with what is known of their use: nothing if the store did not answer, and that of
// this instance's share if the instance answered.
func (h *handler) usage(s *decide.State) []usage {
	all, a := []usage{}, &s.Answer
	if a.Source == sash.FromPolicy {
		for _, l := range s.Limits {
			all = append(all, usage{Limit: wire.LimitOf(l)})
		}
		return all
	}
	// Of a rule with own shares the home knows its part of the limit only.
	known := a.Source != sash.FromOwn && (a.Rule == nil || a.Rule.Place.Own.Regions == 0)
	for i := range a.Limits {
		l := &a.Limits[i]
		of, release, reset := l.Limit.Units, wire.Seconds(l.ReleaseAfter), wire.Seconds(l.ResetAfter)
		u := usage{Limit: wire.LimitOf(l.Limit), Remaining: &l.Remaining, ReleaseAfter: &release, ResetAfter: &reset}
		if a.Source == sash.FromLocal {
			known, of = true, 0
			if instances := int64(h.Store().Instances); instances > 0 {
				of = l.Limit.Units / instances
			}
			u.Share = &of
		}
		if used := max(0, of-l.Remaining); known && !a.Blocked { // a block leaves no units, whatever is used
			u.Used = &used
		}
		all = append(all, u)
	}
	return all
}

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

// charges answers the charges of a subject that its key still holds. Entries are null if they are unknown, and why is the
// reason. Count is the number in the store. If there are too many, entries within the step merged are one, at the latest
// of their times.
func (h *handler) charges(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := bounded(r)
	defer cancel()
	_, state, ok := h.stateOf(ctx, w, r)
	if !ok {
		return
	}
	policy, at := state.Policy, state.Answer.At
	answer := map[string]any{
		"subject": state.Found.Key, "algorithm": nil, "limits": []span{}, "entries": nil, "count": 0, "merged": 0, "why": nil,
	}
	switch why := h.unknown(policy); {
	case why != "":
		answer["why"] = why
	case state.Answer.Cause != nil:
		answer["why"], at = "the store does not answer ("+decide.Cause(state.Answer.Cause)+")", time.Time{}
	default:
		place := config.Place{} // of a request limit
		if rule := state.Found.Rule; rule != nil {
			place = rule.Place
		}
		all, err := h.Charges(ctx, place, state.Found.Key, policy)
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		if !all.At.IsZero() {
			at = all.At
		}
		answer["count"] = len(all.Entries)
		answer["entries"], answer["merged"] = merge(all.Entries)
	}
	answer["at"] = wire.When(at)
	if policy != nil {
		answer["algorithm"], answer["limits"] = policy.Algorithm.String(), spans(state.Limits, policy, at)
	}
	wire.Write(w, http.StatusOK, answer)
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
	case sash.SlidingLog, sash.SlidingBuckets:
		return ""
	}
	return policy.Algorithm.String() + " keeps no compact log of charges"
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
