package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

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
