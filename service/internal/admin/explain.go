package admin

import (
	"errors"
	"net/http"

	"example.com/sash"
	"example.com/sash/service/internal/explanation"
)

// explain tells what a request would be told now, and why, and charges nothing: as POST /v1/explain does.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	var of struct {
		named
		Cost *int64 `json:"cost"`
	}
	if !read(w, r, &of) {
		return
	}
	if err := of.check(); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	e, err := h.decider.Explain(ctx, of.Domain, of.Entries, of.Cost)
	switch {
	case errors.Is(err, sash.ErrInvalidCost):
		fail(w, http.StatusBadRequest, "a cost is at least 1")
	case err != nil:
		h.refuse(w, r, err)
	default:
		write(w, http.StatusOK, explanation.Of(e))
	}
}
