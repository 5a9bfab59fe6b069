package admin

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/verdict"
)

// A window is one limit of a subject, and how much of it is used.
type window struct {
	Name   string          `json:"name"`
	Units  int64           `json:"units"`
	Window verdict.Seconds `json:"window"`           // 0 for a calendar limit
	Period string          `json:"period,omitempty"` // of a calendar limit
	Used   int64           `json:"used"`
	// Remaining is what is left. ReleaseAfter is when the next unit is free, and ResetAfter when all are.
	Remaining    int64           `json:"remaining"`
	ReleaseAfter verdict.Seconds `json:"release_after"`
	ResetAfter   verdict.Seconds `json:"reset_after"`
}

func windowsOf(limits []sash.LimitResult) []window {
	out := []window{}
	for _, l := range limits {
		w := window{
			Name: l.Limit.Name, Units: l.Limit.Units, Window: verdict.Seconds(l.Limit.Window),
			Used: l.Limit.Units - l.Remaining, Remaining: l.Remaining,
			ReleaseAfter: verdict.Seconds(l.ReleaseAfter), ResetAfter: verdict.Seconds(l.ResetAfter),
		}
		w.Period = periodOf(l.Limit)
		out = append(out, w)
	}
	return out
}

// periodOf is a calendar limit's period and zone.
func periodOf(l sash.Limit) (period string) {
	if l.Period != 0 {
		_, period, _ = strings.Cut(l.String(), "/")
	}
	return period
}

// look finds the subject that a query names, and how it stands; otherwise it has answered what is wrong.
func (h *handler) look(ctx context.Context, w http.ResponseWriter, r *http.Request) (of named, look decide.Look, ok bool) {
	of, err := asked(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error()+", as in ?domain=d&entry=user:ann")
		return of, look, false
	}
	if look, err = h.decider.Look(ctx, of.Domain, of.Entries); err != nil {
		h.refuse(w, r, err)
		return of, look, false
	}
	return of, look, true
}

// subject tells how a subject stands, without charging it.
func (h *handler) subject(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := bounded(r)
	defer cancel()
	of, look, ok := h.look(ctx, w, r)
	if !ok {
		return
	}
	answer := map[string]any{
		"subject": look.Found.Key, "domain": of.Domain, "entries": of.Entries, "rule": nil,
		"limits": windowsOf(look.Result.Limits()), "at": instant(look.Result.At), "source": nil,
		"override": h.one(exceptions.Override, of, look.Found.Key), "ban": h.one(exceptions.Ban, of, look.Found.Key),
	}
	if look.Found.Key == "" {
		answer["subject"] = config.Key(of.Domain, of.Entries)
	}
	if rule := look.Found.Rule; rule != nil {
		answer["rule"] = ruleOf(rule)
	}
	if !look.Result.At.IsZero() {
		answer["source"] = look.Result.Source.String()
	}
	write(w, http.StatusOK, answer)
}

// one returns the exception of a kind that a subject has, or nil.
func (h *handler) one(kind exceptions.Kind, of named, key string) any {
	own := config.Key(of.Domain, of.Entries)
	var found any
	for _, e := range h.Exceptions.List(kind) {
		switch e.Subject() {
		case own:
			return h.tell(e)
		case key:
			found = h.tell(e)
		}
	}
	return found
}

// reset forgets what a subject was charged.
func (h *handler) reset(w http.ResponseWriter, r *http.Request) {
	var of named
	if !read(w, r, &of) {
		return
	}
	if err := of.check(); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	if err := h.decider.Reset(ctx, of.Domain, of.Entries); err != nil {
		h.refuse(w, r, err)
		return
	}
	subject := config.Key(of.Domain, of.Entries)
	h.Log.Info("admin: a subject is reset", "subject", subject, "by", h.Access.who(r))
	write(w, http.StatusOK, map[string]string{"subject": subject})
}

// Bounds of an answer of top.
const (
	usualTop = 50
	mostTop  = 1000
)

// top tells who asks for most, or is refused most.
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
		fail(w, http.StatusBadRequest, "by is units or refused, and n is 1 to "+strconv.Itoa(mostTop))
		return
	}
	if by == "" {
		by = "units"
	}
	subjects, since := h.Stats.Hottest(order, n)
	write(w, http.StatusOK, map[string]any{"by": by, "since": verdict.Instant(since), "top": subjects})
}
