package httpapi

import (
	"context"
	"net/http"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/wire"
)

func (h *Handler) reserve(w http.ResponseWriter, r *http.Request) {
	req, ok := h.readCharge(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	answer, reservation, err := h.decider.Reserve(ctx, req)
	if err != nil {
		h.fail(w, r, err, &wire.Undecided)
		return
	}
	decision := wire.AnswerOf(&answer)
	decision.Waits(&req, &answer)
	if reservation != nil {
		decision.Token = h.opts.Tokens.Seal(reservation)
	}
	wire.Write(w, statusOf(w, &decision), decision)
}

// A settlement is the body of POST /v1/settle.
type settlement struct {
	// Token is what POST /v1/reserve answered.
	Token string `json:"token"`
	// Used is the units that the call used. It has to be there: without it a charge would be given back by mistake.
	Used *int64 `json:"used"`
}

func (h *Handler) settle(w http.ResponseWriter, r *http.Request) {
	body := readAs[settlement](w, r, "token and used")
	switch {
	case body == nil:
	case body.Used == nil:
		wire.Fail(w, http.StatusBadRequest, "used is missing: send the units that the call used, or POST /v1/cancel to give all of it back")
	default:
		h.settleTo(w, r, body.Token, *body.Used)
	}
}

// A cancellation is the body of POST /v1/cancel.
type cancellation struct {
	Token string `json:"token"`
}

func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) {
	if body := readAs[cancellation](w, r, "token"); body != nil {
		h.settleTo(w, r, body.Token, 0)
	}
}

// settleTo corrects the charge of a reservation to the units that were used.
func (h *Handler) settleTo(w http.ResponseWriter, r *http.Request, token string, used int64) {
	if token == "" || len(token) > wire.MaxToken {
		wire.Fail(w, http.StatusBadRequest, "the token is missing, or too long: send what POST /v1/reserve answered")
		return
	}
	reservation, err := h.opts.Tokens.Open(token)
	domain := "" // any, for a token of nothing or of an earlier version
	if err == nil {
		domain = reservation.Domain
	}
	if err := h.opts.Access.Check(r.Context(), domain, access.Decide); err != nil {
		access.Fail(w, err)
		return
	}
	if err == nil && wire.Expired(reservation, h.opts.Now()) {
		wire.Fail(w, http.StatusGone, "the reservation has expired: its charge has left every window, and there is nothing to settle")
		return
	}
	if err == nil {
		err = h.decider.Settle(r.Context(), reservation, used)
	}
	if err != nil {
		h.fail(w, r, err, &wire.Unsettled)
		return
	}
	wire.Write(w, http.StatusOK, map[string]bool{"settled": true})
}
