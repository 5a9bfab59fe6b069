package admin

import (
	"errors"
	"net/http"
	"time"

	"example.com/sash/failover"
	"example.com/sash/service/internal/wire"
)

// Forcing is the store whose state operators can force.
type Forcing interface {
	Force(state failover.State, until time.Time) error
	Lift()
}

// An order records the operator that forced a state, and the reason.
type order struct{ caller, reason string }

// A forceForm is the body of a request that forces a state.
type forceForm struct {
	State   string `json:"state"`
	Expires string `json:"expires"`
	Reason  string `json:"reason"`
}

// Check returns an error if the form has no state.
func (f *forceForm) Check() error {
	if f.State != failover.Up.String() && f.State != failover.Down.String() {
		return errors.New(`state is "down", to answer by on_unavailable without asking Redis, or "up", to ask Redis whatever it answers`)
	}
	return nil
}

// force makes the store of this instance count as up or down.
func (h *handler) force(w http.ResponseWriter, r *http.Request) {
	body := read[forceForm](w, r)
	if body == nil {
		return
	}
	if h.Forcing == nil {
		wire.Fail(w, http.StatusNotFound, "this instance has no Redis: its memory is always up")
		return
	}
	var until time.Time
	if body.Expires != "" {
		life, err := parseLife(body.Expires)
		if err != nil || life <= 0 {
			wire.Fail(w, http.StatusBadRequest, `expires is not a duration, such as "90m" or "2h": leave it out to force the state until DELETE`)
			return
		}
		until = time.Now().Add(life)
	}
	state := failover.Up
	if body.State == failover.Down.String() {
		state = failover.Down
	}
	if err := h.Forcing.Force(state, until); err != nil {
		h.refuse(w, r, err)
		return
	}
	h.forced.Store(&order{h.Guard.by(r), body.Reason})
	h.Log.Warn("admin: the state of the store is forced", "state", body.State, "until", untilText(until), "reason", body.Reason, "by", h.Guard.by(r))
	h.store(w, r)
}

// lift ends what force began.
func (h *handler) lift(w http.ResponseWriter, r *http.Request) {
	if h.Forcing != nil {
		h.Forcing.Lift()
		h.Log.Warn("admin: the state of the store is not forced any more", "by", h.Guard.by(r))
	}
	h.store(w, r)
}

func untilText(until time.Time) string {
	if until.IsZero() {
		return "it is lifted"
	}
	return until.UTC().Format(time.RFC3339)
}
