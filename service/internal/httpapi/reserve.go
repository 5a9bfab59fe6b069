package httpapi

import (
	"context"
	"net/http"
	"time"

	"example.com/sash/service/internal/verdict"
)

// clockSlack is how much the clocks of the service and its store may differ before a reservation is taken for
// expired while it still counts.
const clockSlack = time.Minute

// A reserved is a verdict with the token that settles it, which is there when the request was let through.
type reserved struct {
	verdict.Verdict
	Token string `json:"token,omitempty"`
}

func (h *Handler) reserve(w http.ResponseWriter, r *http.Request) {
	req := asked(w, r)
	if req == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	v, reservation, err := h.decider.Reserve(ctx, req.id(), req.Domain, req.Entries, req.Cost)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	answer := reserved{Verdict: v}
	if reservation != nil {
		answer.Token = h.tokens.seal(reservation)
	}
	write(w, decided(w, v), answer)
}

// A settlement is the body of POST /v1/settle.
type settlement struct {
	// Token is what POST /v1/reserve answered.
	Token string `json:"token"`
	// Used is what the call was worth. It has to be there: without it a charge would be given back by mistake.
	Used *int64 `json:"used"`
}

func (h *Handler) settle(w http.ResponseWriter, r *http.Request) {
	if !posted(w, r) {
		return
	}
	body, problem := readAs[settlement](w, r, "token and used")
	switch {
	case problem != nil:
		fail(w, problem.status, problem.text)
	case body.Used == nil:
		fail(w, http.StatusBadRequest, "used is missing: say what the call was worth, or POST /v1/cancel to give all of it back")
	default:
		h.worth(w, r, body.Token, *body.Used)
	}
}

// A cancellation is the body of POST /v1/cancel.
type cancellation struct {
	Token string `json:"token"`
}

func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) {
	if !posted(w, r) {
		return
	}
	body, problem := readAs[cancellation](w, r, "token")
	if problem != nil {
		fail(w, problem.status, problem.text)
		return
	}
	h.worth(w, r, body.Token, 0)
}

var unsettled = silence{
	"the store did not answer: whether the reservation is settled is not known; send this again, it counts once",
	"the store is not asked for now: the reservation is not settled; send this again",
}

// worth settles a reservation.
func (h *Handler) worth(w http.ResponseWriter, r *http.Request, token string, used int64) {
	if token == "" || len(token) > maxToken {
		fail(w, http.StatusBadRequest, "the token is missing, or too long: send what POST /v1/reserve answered")
		return
	}
	reservation, err := h.tokens.open(token)
	if err == nil && reservation.Units > 0 && h.opts.Now().After(reservation.Expires().Add(clockSlack)) {
		fail(w, http.StatusGone, "the reservation has expired: its charge has left every window, and there is nothing to settle")
		return
	}
	if err == nil {
		err = h.decider.Settle(r.Context(), reservation, used)
	}
	if err != nil {
		h.answerError(w, r, err, &unsettled)
		return
	}
	write(w, http.StatusOK, map[string]bool{"settled": true})
}
