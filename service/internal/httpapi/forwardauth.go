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
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

const forwardAuthPath = "/v1/forward-auth"

// forwardAuth answers a proxy that asks whether it may let a request through: 200, or the refusal that the
// proxy gives its client. The parameters of the URL are the proxy's configuration, and the X-Forwarded
// headers describe the client's request.
//
// A proxy that asks wrongly gets 400, and the mistake is logged, because nginx keeps the answer to itself.
func (h *Handler) forwardAuth(w http.ResponseWriter, r *http.Request) {
	question, err := parseQuestion(r.URL.RawQuery)
	if err == nil {
		if denied := h.opts.Access.Check(r.Context(), question.domain, access.Decide); denied != nil {
			access.Fail(w, denied)
			return
		}
	}
	if err == nil && !fromProxy(r.Header) {
		err = errDirect
	}
	if err == nil {
		_, err = h.decider.Config().Find(question.domain, nil) // whether there is such a domain
	}
	var parts []decide.Part
	if err == nil {
		h.unmatched.warn(h.decider.Config(), question, r.URL.RawQuery, h.opts.Log)
		parts, err = question.parts(r.Header)
	}
	if err != nil {
		if !errors.Is(err, errRepeated) && !errors.Is(err, httplimit.ErrBadKey) { // which any client can bring about
			h.log.Log(slog.LevelError, "a proxy asks for forward-auth wrongly, and its clients get an error", "error", err)
		}
		wire.Fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	answers, err := h.decider.Decide(ctx, decide.Request{Domain: question.domain, Parts: parts, Lenient: true})
	if err != nil {
		h.fail(w, r, err, &wire.Undecided)
		return
	}
	disclosed := question.disclose(answers)
	question.fields.Set(w.Header(), disclosed.limits, atOf(answers))
	if !disclosed.refused {
		w.WriteHeader(http.StatusOK)
		return
	}
	if disclosed.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(wire.Seconds(disclosed.retryAfter).RoundUp(), 10))
	}
	httplimit.Denial{
		Status: question.deny, RetryAfter: disclosed.retryAfter, Policies: disclosed.refusedBy, Result: sash.Result{Blocked: disclosed.blocked},
	}.Write(w)
}

// A disclosure is what the client learns of a decision.
type disclosure struct {
	refused    bool
	blocked    bool          // for too many refusals
	retryAfter time.Duration // of a refusal; zero when waiting does not help
	refusedBy  []string
	limits     []sash.LimitResult
}

// disclose joins the answers, without limits that do not bind.
func (q *question) disclose(answers []decide.Answer) (all disclosure) {
	for i := range answers {
		a := &answers[i]
		if a.Soft() {
			continue
		}
		all.refused, all.blocked = all.refused || a.Refused, all.blocked || a.Blocked
		if a.Source == sash.FromPolicy { // nothing was counted
			continue
		}
		if a.BannedBy != nil { // no limit that a client could keep to: a policy of no units and no window would be malformed
			all.retryAfter = max(all.retryAfter, a.RefusedBy.RetryAfter)
			all.refusedBy = append(all.refusedBy, a.RefusedBy.Limit.Name)
			continue
		}
		for _, l := range a.Limits {
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

// atOf returns the store's clock at the last decision, or this process's if the store made none.
func atOf(answers []decide.Answer) time.Time {
	var at time.Time
	for i := range answers {
		if answers[i].At.After(at) {
			at = answers[i].At
		}
	}
	if at.IsZero() {
		return time.Now()
	}
	return at
}

// name names a descriptor in the fields: its keys, as the parameter has them.
func (d descriptor) name() string {
	keys := make([]string, len(d))
	for i, s := range d {
		keys[i] = s.key
	}
	return strings.Join(keys, ",")
}
