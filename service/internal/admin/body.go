package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
)

// Bounds of a request.
const (
	maxBody    = 64 << 10
	maxEntries = 32
	timeout    = 2 * time.Second // of what asks the store
)

// A named is a subject by the domain and entries of its requests.
type named struct {
	Domain  string         `json:"domain"`
	Entries []config.Entry `json:"entries"`
}

func (n *named) check() error {
	switch {
	case n.Domain == "":
		return errors.New("the domain is missing or empty")
	case len(n.Entries) == 0:
		return errors.New("entries are missing: give at least one key and value")
	case len(n.Entries) > maxEntries:
		return fmt.Errorf("%d entries: there may be at most %d", len(n.Entries), maxEntries)
	}
	for i, e := range n.Entries {
		if e.Key == "" {
			return fmt.Errorf("entry %d: the key is missing or empty", i+1)
		}
	}
	return nil
}

// asked reads a subject from a query: domain=d&entry=user:ann. A key ends at the first colon.
func asked(r *http.Request) (named, error) {
	query := r.URL.Query()
	n := named{Domain: query.Get("domain")}
	for _, text := range query["entry"] {
		key, value, _ := strings.Cut(text, ":")
		n.Entries = append(n.Entries, config.Entry{Key: key, Value: value})
	}
	return n, n.check()
}

// read reads a body that must say that it is JSON: a form of another site's page cannot. It answers, and returns
// false, when the body is wrong.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "send application/json")
		return false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody))
		return false
	}
	if err == nil && !utf8.Valid(body) {
		err = errors.New("the body is not UTF-8")
	}
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err = decoder.Decode(into); err == nil && decoder.More() {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad JSON: "+strings.TrimPrefix(err.Error(), "json: "))
		return false
	}
	return true
}

// refuse answers a request that came to nothing.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := 0
	for _, is := range []struct {
		err    error
		status int
	}{
		{config.ErrUnknownDomain, http.StatusNotFound},
		{decide.ErrNotLimited, http.StatusUnprocessableEntity},
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
		fail(w, status, strings.TrimPrefix(err.Error(), "sash: "))
		return
	}
	if r.Context().Err() == nil {
		h.Log.Error("the admin port could not do what it was asked", "path", r.URL.Path, "error", err)
	}
	w.Header().Set("Retry-After", "1")
	if r.Method == http.MethodGet {
		fail(w, http.StatusServiceUnavailable, "the store did not answer")
		return
	}
	fail(w, http.StatusServiceUnavailable, "the store did not answer: whether a change was made is not known")
}

// bounded returns a request's context with an end.
func bounded(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), timeout)
}

// fail answers {"error": text}.
func fail(w http.ResponseWriter, status int, text string) {
	write(w, status, map[string]string{"error": text})
}

func write(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil { // every body here can be marshalled
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that is gone is no concern of ours
}
