package httpapi

import (
	"context"
	"log/slog"
	"mime"
	"net/http"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// ResetPath is where the admin port has Reset.
const ResetPath = "/admin/v1/reset"

// A subject is the body of a reset.
type subject struct {
	Domain  string         `json:"domain"`
	Entries []config.Entry `json:"entries"`
}

var unreset = silence{
	"the store did not answer: whether the subject is reset is not known; this can be sent again",
	"the store is not asked for now: the subject is not reset; send this again",
}

// Reset returns a handler that forgets what a subject was charged with. It is for the
// admin port: who can ask for a decision may not be free to undo them.
func Reset(decider *decide.Decider) http.Handler {
	h := prepare(decider, &Options{Log: slog.New(slog.DiscardHandler)})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		h.reset(w, r)
	})
}

func (h *Handler) reset(w http.ResponseWriter, r *http.Request) {
	if !posted(w, r) {
		return
	}
	// A page that an operator looks at may post forms and plain text to his loopback addresses, but not JSON.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "the body must be application/json, and the Content-Type must say so")
		return
	}
	body, problem := readAs[subject](w, r, "domain and entries")
	if problem == nil {
		problem = checkSubject(body.Domain, body.Entries)
	}
	if problem != nil {
		fail(w, problem.status, problem.text)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	if err := h.decider.Reset(ctx, body.Domain, body.Entries); err != nil {
		h.answerError(w, r, err, &unreset)
		return
	}
	write(w, http.StatusOK, map[string]string{"subject": config.Key(body.Domain, body.Entries)})
}
