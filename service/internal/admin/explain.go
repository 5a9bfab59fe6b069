package admin

import (
	"errors"
	"net/http"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// explain answers, like POST /v1/explain, how a request would be decided now and why. It charges nothing.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	type body struct {
		wire.Subject
		Cost *int64 `json:"cost"`
	}
	of := read[body](w, r)
	if of == nil {
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	req := decide.One(of.Domain, of.Entries, of.Cost)
	req.Parts[0].Named = true
	e, err := h.decider.Explain(ctx, req)
	switch {
	case errors.Is(err, sash.ErrInvalidCost):
		wire.Fail(w, http.StatusBadRequest, "cost must be at least 1")
	case err != nil:
		h.refuse(w, r, err)
	default:
		wire.Write(w, http.StatusOK, wire.ExplanationOf(&e))
	}
}
