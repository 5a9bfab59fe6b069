package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/verdict"
)

// forwardAuth answers a proxy that asks whether it may let a request through: 200, or the refusal that the
// proxy gives its client. The parameters of the URL are the proxy's configuration, and the X-Forwarded
// headers describe the client's request.
//
// A proxy that asks wrongly is told so with 400, and so is the log, because nginx keeps the answer to itself.
func (h *Handler) forwardAuth(w http.ResponseWriter, r *http.Request) {
	question, err := parseQuestion(r.URL.RawQuery)
	var parts []decide.Part
	if err == nil {
		parts, err = question.parts(r.Header)
	}
	if err == nil {
		err = h.price(question.domain, parts)
	}
	if err != nil {
		if !errors.Is(err, errRepeated) { // which any client can bring about
			h.log.Log(slog.LevelError, "a proxy asks for forward-auth wrongly, and its clients get an error", "error", err)
		}
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	answers, err := h.decider.DecideParts(ctx, question.domain, parts, decide.Together)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	told := question.tell(answers)
	httplimit.Draft11.Set(w.Header(), told.limits, time.Now())
	if !told.refused {
		w.WriteHeader(http.StatusOK)
		return
	}
	if told.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(verdict.Seconds(told.retryAfter).RoundUp(), 10))
	}
	httplimit.Denial{Status: question.deny, RetryAfter: told.retryAfter, Policies: told.refusedBy}.Write(w)
}

// price gives each part the cost of the rule that it meets. The error is that of a domain that is not
// configured.
func (h *Handler) price(domain string, parts []decide.Part) error {
	cfg := h.decider.Config()
	for i := range parts {
		found, err := cfg.Find(domain, parts[i].Entries)
		if errors.Is(err, config.ErrUnknownDomain) {
			return err
		}
		parts[i].Units = 1
		if found.Rule != nil {
			parts[i].Units = found.Rule.Cost
		}
	}
	return nil
}

// A told is what the client learns of a decision.
type told struct {
	refused    bool
	retryAfter time.Duration // of a refusal; zero when waiting does not help
	refusedBy  []string
	limits     []sash.LimitResult
}

// tell puts the answers together. Limits that do not bind are not told.
func (q *question) tell(answers []decide.Answer) (all told) {
	for i := range answers {
		a := &answers[i]
		if a.Soft() {
			continue
		}
		all.refused = all.refused || a.Refused
		if a.Source == sash.FromPolicy { // nothing was counted
			continue
		}
		if a.Banned { // which is no limit that a client could keep to: a policy of no units and no window would be malformed
			all.retryAfter = max(all.retryAfter, a.RefusedBy.RetryAfter)
			all.refusedBy = append(all.refusedBy, a.RefusedBy.Limit.Name)
			continue
		}
		for _, l := range a.Limits {
			if a.Refused && !l.Refused && l.Limit == a.RefusedBy.Limit {
				// It was only looked at, because another part had refused.
				l.Refused, l.RetryAfter = true, l.ReleaseAfter
			}
			if len(answers) > 1 {
				l.Limit.Name = q.descriptors[i].name() + ":" + l.Limit.Name
			}
			if l.Refused {
				all.retryAfter = max(all.retryAfter, l.RetryAfter)
				all.refusedBy = append(all.refusedBy, l.Limit.Name)
			}
			all.limits = append(all.limits, l)
		}
	}
	return all
}

// name tells descriptors apart in the fields: the keys, as the parameter has them.
func (d descriptor) name() string {
	keys := make([]string, len(d))
	for i, s := range d {
		keys[i] = s.key
	}
	return strings.Join(keys, ",")
}
