package admin

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/wire"
)

// An exception is an override or a ban as JSON.
type exception struct {
	ID        string         `json:"id"`
	Subject   string         `json:"subject"`
	Domain    string         `json:"domain"`
	Entries   []config.Entry `json:"entries"`
	Limits    []string       `json:"limits,omitempty"` // of an override
	Since     wire.Instant   `json:"since"`
	Expires   wire.Instant   `json:"expires"`
	ExpiresIn wire.Seconds   `json:"expires_in"`
	By        string         `json:"by"`
	Reason    string         `json:"reason"`
	// InEffect is false for an override if the configuration in use has no rule for it, or one whose algorithm cannot
	// count its limits; and for a ban if no request that the configuration counts can match it. Why says so.
	InEffect bool    `json:"in_effect"`
	Why      *string `json:"why"`
}

func (h *handler) exception(e exceptions.Exception) exception {
	out := exception{
		ID: e.ID(), Subject: e.Subject(), Domain: e.Domain, Entries: e.Entries, Limits: e.Limits,
		Since: wire.Instant(e.Since), Expires: wire.Instant(e.Until), ExpiresIn: wire.Seconds(time.Until(e.Until)),
		By: e.By, Reason: e.Reason, InEffect: true,
	}
	if err := h.Exceptions.Effect(e); err != nil {
		why := strings.TrimPrefix(err.Error(), "sash: ")
		out.InEffect, out.Why = false, &why
	}
	return out
}

func (h *handler) list(kind exceptions.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		all := []exception{}
		for _, e := range h.Exceptions.List(kind) {
			all = append(all, h.exception(e))
		}
		status := h.Exceptions.Status()
		answer := map[string]any{string(kind) + "s": all, "read_at": wire.When(status.Read), "error": nil}
		if status.Err != nil {
			answer["error"] = status.Err.Error()
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
		ctx, cancel := bounded(r)
		defer cancel()
		put, err := h.Exceptions.Put(ctx, exceptions.Exception{
			Kind: kind, Domain: body.Domain, Entries: body.Entries, Limits: body.Limits, Reason: body.Reason, By: h.Guard.by(r),
		}, life)
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		h.Log.Info("admin: an exception was set", "kind", string(kind), "subject", put.Subject(), "limits", strings.Join(put.Limits, " and "),
			"until", put.Until.UTC().Format(time.RFC3339), "reason", put.Reason, "by", put.By)
		wire.Write(w, http.StatusOK, h.exception(put))
	}
}

func (h *handler) remove(kind exceptions.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := bounded(r)
		defer cancel()
		gone, found, err := h.Exceptions.Delete(ctx, kind, r.PathValue("id"))
		switch {
		case err != nil:
			h.refuse(w, r, err)
		case !found:
			wire.Fail(w, http.StatusNotFound, "no exception has this id: it may have ended")
		default:
			h.Log.Info("admin: an exception was deleted", "kind", string(kind), "subject", gone.Subject(), "by", h.Guard.by(r))
			wire.Write(w, http.StatusOK, h.exception(gone))
		}
	}
}

// parseLife parses a duration such as 90m, or whole days such as 7d.
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
