package admin

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/wire"
)

// subject answers the state of a subject. It charges nothing. If the store does not answer, the source is policy.
func (h *handler) subject(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := bounded(r)
	defer cancel()
	query := r.URL.Query()
	of := wire.Subject{Domain: query.Get("domain")}
	for _, text := range query["entry"] { // user:ann; a key ends at the first colon
		key, value, _ := strings.Cut(text, ":")
		of.Entries = append(of.Entries, config.Entry{Key: key, Value: value})
	}
	if err := of.Check(); err != nil {
		wire.Fail(w, http.StatusBadRequest, err.Error()+", as in ?domain=d&entry=user:ann")
		return
	}
	state, err := h.decider.State(ctx, of.Domain, of.Entries)
	if errors.Is(err, sash.ErrUnavailable) && !errors.Is(err, driver.ErrRejected) {
		state.Answer.Source, state.Answer.Cause, err = sash.FromPolicy, err, nil
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	overridden := config.Key(of.Domain, state.Entries)
	if o := state.Override; o != nil { // of values charged together, or under an older name
		overridden = config.Key(o.Domain, o.Entries)
	}
	answer := map[string]any{
		"subject": cmp.Or(state.Found.Key, config.Key(of.Domain, state.Entries)), "domain": of.Domain, "entries": state.Entries, "rule": nil,
		"limits": h.usage(&state), "at": nil, "source": nil, "cause": nil, "store": h.storeState(true),
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
