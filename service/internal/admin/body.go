package admin

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/wire"
)

// timeout bounds a request that calls the store.
const timeout = 2 * time.Second

// subjectOf reads a subject from a query: domain=d&entry=user:ann. A key ends at the first colon.
func subjectOf(r *http.Request) (wire.Subject, error) {
	query := r.URL.Query()
	s := wire.Subject{Domain: query.Get("domain")}
	for _, text := range query["entry"] {
		key, value, _ := strings.Cut(text, ":")
		s.Entries = append(s.Entries, config.Entry{Key: key, Value: value})
	}
	return s, s.Check()
}

// read reads a JSON body that names a subject. It requires the content type of JSON, which a form on a page of another
// site cannot have. It answers a wrong request itself, and returns nil.
func read[T any, P interface {
	*T
	Check() error
}](w http.ResponseWriter, r *http.Request) *T {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		wire.Fail(w, http.StatusUnsupportedMediaType, "send application/json")
		return nil
	}
	body := wire.Read[T](w, r, "domain and entries")
	if body == nil {
		return nil
	}
	if err := P(body).Check(); err != nil {
		wire.Fail(w, http.StatusBadRequest, err.Error())
		return nil
	}
	return body
}

// refuse answers a request that failed.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := 0
	for _, is := range []struct {
		err    error
		status int
	}{
		{config.ErrUnknownDomain, http.StatusNotFound},
		{decide.ErrNotLimited, http.StatusUnprocessableEntity},
		{config.ErrNoDescriptor, http.StatusUnprocessableEntity},
		{decide.ErrNoSecretKeys, http.StatusUnprocessableEntity},
		{exceptions.ErrInvalid, http.StatusUnprocessableEntity},
		{sash.ErrInvalidLimit, http.StatusUnprocessableEntity},
		{exceptions.ErrFull, http.StatusConflict},
		{sash.ErrUnsupported, http.StatusNotImplemented},
	} {
		if errors.Is(err, is.err) {
			status = is.status
		}
	}
	if status != 0 {
		wire.Fail(w, status, strings.TrimPrefix(err.Error(), "sash: "))
		return
	}
	if r.Context().Err() == nil {
		h.Log.Error("a request to the admin port failed", "path", wire.Clip(r.URL.Path), "error", err)
	}
	wire.SetRetryAfter(w.Header())
	if r.Method == http.MethodGet {
		wire.Fail(w, http.StatusServiceUnavailable, "the store did not answer")
		return
	}
	wire.Fail(w, http.StatusServiceUnavailable, "the store did not answer: the change may have been made or not")
}

// bounded returns a request's context with the timeout.
func bounded(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), timeout)
}
