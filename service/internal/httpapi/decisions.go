package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// within calls the engine with the request's context and Options.Timeout, answers what fails, and reports whether nothing
// did.
func (h *Handler) within(w http.ResponseWriter, r *http.Request, silent *wire.Silence, call func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	err := call(ctx)
	if err != nil {
		h.fail(w, r, err, silent)
	}
	return err == nil
}

func (h *Handler) allow(w http.ResponseWriter, r *http.Request) {
	h.charge(w, r, func(ctx context.Context, req decide.Request) (decide.Answer, string, error) {
		answers, err := h.decider.Decide(ctx, req)
		if err != nil {
			return decide.Answer{}, "", err
		}
		return answers[0], "", nil
	})
}

func (h *Handler) reserve(w http.ResponseWriter, r *http.Request) {
	h.charge(w, r, func(ctx context.Context, req decide.Request) (decide.Answer, string, error) {
		answer, reservation, err := h.decider.Reserve(ctx, req)
		if err != nil || reservation == nil {
			return answer, "", err
		}
		return answer, h.opts.Tokens.Seal(reservation), nil
	})
}

// charge answers a request that charges, with the token of its reservation if it has one.
func (h *Handler) charge(w http.ResponseWriter, r *http.Request, by func(context.Context, decide.Request) (decide.Answer, string, error)) {
	req, ok := h.readCharge(w, r)
	if !ok {
		return
	}
	var answer decide.Answer
	var token string
	if !h.within(w, r, &wire.Undecided, func(ctx context.Context) (err error) { answer, token, err = by(ctx, req); return err }) {
		return
	}
	decision := wire.DecisionOn(&req, &answer)
	decision.Token = token
	status := http.StatusOK
	if !decision.Allowed {
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.FormatInt(decision.RetryAfter.RoundUp(), 10))
	}
	wire.Write(w, status, decision)
}

// peek answers what a request would be answered now, always with 200: nothing was refused.
func (h *Handler) peek(w http.ResponseWriter, r *http.Request) {
	req, ok := h.read(w, r)
	if !ok {
		return
	}
	req.Within = 0
	var answers []decide.Answer
	if h.within(w, r, &wire.Unseen, func(ctx context.Context) (err error) { answers, err = h.decider.Peek(ctx, req); return err }) {
		wire.Write(w, http.StatusOK, wire.AnswerOf(&answers[0]))
	}
}

// settle answers POST /v1/settle. Used has to be there: without it a charge would be given back by mistake.
func (h *Handler) settle(w http.ResponseWriter, r *http.Request) {
	body := readAs[struct {
		Token string `json:"token"` // what POST /v1/reserve answered
		Used  *int64 `json:"used"`  // the units that the call used
	}](w, r, "token and used")
	switch {
	case body == nil:
	case body.Used == nil:
		wire.Fail(w, http.StatusBadRequest, "used is missing: send the units that the call used, or POST /v1/cancel to give all of it back")
	default:
		h.settleTo(w, r, body.Token, *body.Used)
	}
}

func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) {
	body := readAs[struct {
		Token string `json:"token"`
	}](w, r, "token")
	if body != nil {
		h.settleTo(w, r, body.Token, 0)
	}
}

// settleTo corrects the charge of a reservation to the units that were used.
func (h *Handler) settleTo(w http.ResponseWriter, r *http.Request, token string, used int64) {
	if token == "" || len(token) > wire.MaxToken {
		wire.Fail(w, http.StatusBadRequest, "the token is missing, or too long: send what POST /v1/reserve answered")
		return
	}
	err := h.opts.Tokens.Settle(r.Context(), h.decider, h.opts.Now(), token, used, func(domain string) error {
		return h.opts.Access.Check(r.Context(), domain, access.Decide)
	})
	if err != nil {
		h.fail(w, r, err, &wire.Unsettled)
		return
	}
	wire.Write(w, http.StatusOK, map[string]bool{"settled": true})
}
