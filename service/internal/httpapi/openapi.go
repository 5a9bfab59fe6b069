package httpapi

import (
	_ "embed"
	"net/http"

	"example.com/sash/service/internal/wire"
)

// document describes every path, those of the admin port that belong to the API too. Tests hold it against the
// handlers.
//
//go:embed openapi.yaml
var document []byte

func serveDocument(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		wire.Fail(w, http.StatusMethodNotAllowed, "method "+r.Method+": GET the document here")
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(document) // a client that is gone is no concern of ours
}

// A mux is an http.ServeMux that knows its patterns, so that a test can hold them against the document.
type mux struct {
	http.ServeMux
	patterns []string
}

// Handle registers a handler.
func (m *mux) Handle(pattern string, handler http.Handler) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.Handle(pattern, handler)
}

// HandleFunc registers a function.
func (m *mux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	m.Handle(pattern, http.HandlerFunc(handler))
}
