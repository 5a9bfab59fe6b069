package httpapi

import (
	"context"
	"net/http"

	"example.com/sash/service/internal/wire"
)

// peek answers what a request would be answered now, always with 200: nothing was refused.
func (h *Handler) peek(w http.ResponseWriter, r *http.Request) {
	req, ok := h.read(w, r)
	if !ok {
		return
	}
	req.Within = 0
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	answers, err := h.decider.Peek(ctx, req)
	if err != nil {
		h.fail(w, r, err, &wire.Unseen)
		return
	}
	wire.Write(w, http.StatusOK, wire.AnswerOf(&answers[0]))
}

// explain answers operators which rule a request meets, and what it would be answered now.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request) {
	req, ok := readRequest(w, r)
	if !ok {
		return
	}
	req.Within = 0
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	e, err := h.decider.Explain(ctx, req)
	if err != nil {
		h.fail(w, r, err, &unseen)
		return
	}
	wire.Write(w, http.StatusOK, wire.ExplanationOf(&e))
}
