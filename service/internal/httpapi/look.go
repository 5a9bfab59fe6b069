package httpapi

import (
	"context"
	"net/http"

	"example.com/sash/service/internal/explanation"
)

var unseen = silence{
	"the store did not answer: there is no decision, and nothing was charged",
	undecided.notAsked,
}

// peek answers what a request would be told, always with 200: nothing was refused.
func (h *Handler) peek(w http.ResponseWriter, r *http.Request) {
	req := asked(w, r)
	if req == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	v, err := h.decider.Peek(ctx, req.Domain, req.Entries, req.Cost)
	if err != nil {
		h.answerError(w, r, err, &unseen)
		return
	}
	write(w, http.StatusOK, v)
}

// explain answers which rule a request meets, and what comes of it.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request) {
	req := asked(w, r)
	if req == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	e, err := h.decider.Explain(ctx, req.Domain, req.Entries, req.Cost)
	if err != nil {
		h.answerError(w, r, err, &unseen)
		return
	}
	write(w, http.StatusOK, explanation.Of(e))
}
