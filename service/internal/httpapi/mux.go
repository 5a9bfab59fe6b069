package httpapi

import "net/http"

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
