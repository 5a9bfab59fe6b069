package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/wire"
)

// subject returns the state of a subject. It charges nothing. If the store does not answer, the source is policy.
func (h *handler) subject(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
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
	if a := &state.Answer; len(a.Limits) > 0 || a.Source == sash.FromPolicy {
		answer["source"] = a.Source.String()
		if a.Source != sash.FromPolicy { // its time is not from a store
			answer["at"] = wire.When(a.At)
		}
		if a.Cause != nil {
			answer["cause"] = cause.Of(a.Cause)
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

func (h *handler) one(kind exceptions.Kind, subject string) map[string]any {
	for _, e := range h.Exceptions.List(kind) {
		if e.Subject == subject {
			return h.exception(e)
		}
	}
	return nil
}

func (h *handler) reset(w http.ResponseWriter, r *http.Request) {
	of := read[wire.Subject](w, r)
	if of == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	if err := h.decider.Reset(ctx, of.Domain, of.Entries); err != nil {
		h.refuse(w, r, err)
		return
	}
	named, _ := h.decider.Named(of.Domain, of.Entries) // the entries were valid for the reset
	subject := config.Key(of.Domain, named)
	h.Log.Info("admin: a subject was reset", "subject", subject, "by", h.Guard.by(r))
	wire.Write(w, http.StatusOK, map[string]string{"subject": subject})
}

// A usage is a limit of a subject and how much of it is used. An unknown number is null.
type usage struct {
	wire.Limit
	Remaining *int64 `json:"remaining"`
	// Share is the units that this instance may admit alone while the store does not answer, and Used counts units of it. Share
	// is absent otherwise. Used is null if it is unknown: for a blocked subject, and for a rule with own shares of regions.
	Share *int64 `json:"share,omitempty"`
	Used  *int64 `json:"used"`
	// ReleaseAfter is the time until the next unit is free, and ResetAfter the time until all are.
	ReleaseAfter *wire.Seconds `json:"release_after"`
	ResetAfter   *wire.Seconds `json:"reset_after"`
}

// usage returns the limits of a subject and their known use. That is the use of this instance's share if the
// instance answered, and nothing if there was no answer.
func (h *handler) usage(s *decide.State) []usage {
	all, a := []usage{}, &s.Answer
	if a.Source == sash.FromPolicy {
		for _, l := range s.Limits {
			all = append(all, usage{Limit: wire.LimitOf(l)})
		}
		return all
	}
	// For a rule with own shares, the home knows only its own part of the limit.
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

// exception describes an override or a ban, and says why if it has no effect. An override has no effect without a rule for
// it, or if that rule's algorithm cannot count its limits. A ban has none if no counted request can match it.
func (h *handler) exception(e exceptions.Exception) map[string]any {
	out := map[string]any{
		"id": e.ID, "subject": e.Subject, "domain": e.Domain, "entries": e.Entries, "by": e.By, "reason": e.Reason,
		"since": wire.Instant(e.Since), "expires": wire.Instant(e.Until), "expires_in": wire.Seconds(time.Until(e.Until)),
		"in_effect": true, "why": nil,
	}
	if len(e.Limits) > 0 {
		out["limits"] = e.Limits
	}
	if err := h.Exceptions.Effect(e); err != nil {
		out["in_effect"], out["why"] = false, strings.TrimPrefix(err.Error(), "sash: ")
	}
	return out
}

func (h *handler) list(kind exceptions.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		all := []map[string]any{}
		for _, e := range h.Exceptions.List(kind) {
			all = append(all, h.exception(e))
		}
		read, err := h.Exceptions.Status()
		answer := map[string]any{string(kind) + "s": all, "read_at": wire.When(read), "error": nil}
		if err != nil {
			answer["error"] = err.Error()
		}
		wire.Write(w, http.StatusOK, answer)
	}
}

func (h *handler) put(kind exceptions.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		type form struct {
			wire.Subject
			Limits  []string `json:"limits"`
			Expires string   `json:"expires"`
			Reason  string   `json:"reason"`
		}
		body := read[form](w, r)
		if body == nil {
			return
		}
		life, err := parseLife(body.Expires)
		if err != nil {
			wire.Fail(w, http.StatusBadRequest, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		put, err := h.Exceptions.Put(ctx, exceptions.Exception{
			Kind: kind, Domain: body.Domain, Entries: body.Entries, Limits: body.Limits, Reason: body.Reason, By: h.Guard.by(r),
		}, life)
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		h.Log.Info("admin: an exception was set", "kind", string(kind), "subject", put.Subject, "limits", strings.Join(put.Limits, " and "),
			"until", put.Until.UTC().Format(time.RFC3339), "reason", put.Reason, "by", put.By)
		wire.Write(w, http.StatusOK, h.exception(put))
	}
}

func (h *handler) remove(kind exceptions.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		gone, found, err := h.Exceptions.Delete(ctx, kind, r.PathValue("id"))
		switch {
		case err != nil:
			h.refuse(w, r, err)
		case !found:
			wire.Fail(w, http.StatusNotFound, "no exception has this id: it may have ended")
		default:
			h.Log.Info("admin: an exception was deleted", "kind", string(kind), "subject", gone.Subject, "by", h.Guard.by(r))
			wire.Write(w, http.StatusOK, h.exception(gone))
		}
	}
}

func parseLife(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	life, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New(`expires is missing or not a duration: send how long the exception holds, such as "90m", "2h" or "7d"`)
	}
	return life, nil
}
