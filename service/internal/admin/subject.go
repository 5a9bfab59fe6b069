package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/stats"
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
	answer := map[string]any{
		"subject": state.Found.Key, "domain": of.Domain, "entries": state.Entries, "rule": nil,
		"limits": h.usage(&state), "at": nil, "source": nil, "cause": nil, "last": h.last(state.Found.Key), "store": h.state(true),
		"override": nil, "ban": nil, "blocked_until": nil, "refused": h.refused(state.Found.Key),
	}
	if until := state.BlockedUntil(); !until.IsZero() {
		answer["blocked_until"] = wire.Instant(until)
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
	overridden := config.Key(of.Domain, state.Entries)
	if o := state.Override; o != nil { // of values charged together, or under an older name
		overridden = config.Key(o.Domain, o.Entries)
	}
	if e := h.one(exceptions.Override, overridden); e != nil {
		answer["override"] = e
	}
	if ban := state.Ban; ban != nil { // of a network, or of the first entries
		answer["ban"] = h.one(exceptions.Ban, config.Key(ban.Domain, ban.Entries))
	}
	if state.Found.Key == "" {
		answer["subject"] = config.Key(of.Domain, state.Entries)
	}
	if rule := state.Found.Rule; rule != nil {
		answer["rule"] = ruleOf(rule)
	}
	wire.Write(w, http.StatusOK, answer)
}

// A refusal is a refused call of a subject.
type refusal struct {
	At    wire.Instant `json:"at"`
	Units int64        `json:"units"`
}

// refused returns the latest refused calls of a subject that this instance knows of, the oldest first.
func (h *handler) refused(key string) []refusal {
	all := []refusal{}
	for _, r := range h.Stats.Refusals(key) {
		all = append(all, refusal{wire.Instant(r.At), r.Units})
	}
	return all
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

// Bounds of the answers of top.
const (
	usualTop = 50
	mostTop  = 1000
)

// top answers the subjects that request the most units, or are refused most often.
func (h *handler) top(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	by, n := query.Get("by"), usualTop
	order, known := map[string]stats.Order{"": stats.ByUnits, "units": stats.ByUnits, "refused": stats.ByRefused}[by]
	if text := query.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > mostTop {
			n = 0
		}
	}
	if !known || n == 0 {
		wire.Fail(w, http.StatusBadRequest, "by is units or refused, and n is 1 to "+strconv.Itoa(mostTop))
		return
	}
	by = cmp.Or(by, "units")
	subjects, since := h.Stats.Hottest(order, n)
	wire.Write(w, http.StatusOK, map[string]any{"by": by, "since": wire.Instant(since), "top": subjects})
}

// usage returns the limits of a subject with what is known of their use: nothing if the store did not answer, and that of
// this instance's share if the instance answered.
func (h *handler) usage(s *decide.State) []wire.Usage {
	if s.Policy != nil && s.Answer.Source == sash.FromPolicy {
		unknown := make([]wire.Usage, len(s.Limits))
		for i, l := range s.Limits {
			unknown[i].Limit = wire.LimitOf(l)
		}
		return unknown
	}
	all := wire.UsageOf(&s.Answer)
	if s.Answer.Source != sash.FromLocal {
		return all
	}
	instances := int64(h.Store().Instances)
	for i := range all {
		u := &all[i]
		share := int64(0)
		if instances > 0 {
			share = u.Units / instances
		}
		used := max(0, share-*u.Remaining)
		if u.Share = &share; !s.Answer.Blocked {
			u.Used = &used
		}
	}
	return all
}

// A last is what the store said last about a subject.
type last struct {
	At     wire.Instant `json:"at"` // the store's clock
	For    wire.Seconds `json:"for"`
	Limits []lastLimit  `json:"limits"`
}

type lastLimit struct {
	Name      string `json:"name"`
	Units     int64  `json:"units"`
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
}

// last returns what the store said last about a subject, or nil if that is not known.
func (h *handler) last(key string) *last {
	seen := h.Stats.LastSeen(key)
	if seen.At.IsZero() {
		return nil
	}
	l := &last{At: wire.Instant(seen.At), For: wire.Seconds(max(0, time.Since(seen.At)))}
	for _, s := range seen.Limits {
		l.Limits = append(l.Limits, lastLimit{s.Name, s.Units, s.Units - s.Remaining, s.Remaining})
	}
	return l
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
