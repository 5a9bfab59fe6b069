package httpapi

import (
	"net/http"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/wire"
)

// open are the paths that need no credentials: load balancers have none, and the document is no secret.
var open = map[string]bool{"/healthz": true, "/healthcheck": true, "/openapi.yaml": true}

// explainPath has the credentials of operators, which operator checks.
const explainPath = "/v1/explain"

// operator serves operators.
func (h *Handler) operator(next http.HandlerFunc) http.Handler {
	if h.opts.Operator == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			wire.Fail(w, http.StatusForbidden, "this is for operators, of whom none is configured")
		})
	}
	return h.opts.Operator(next)
}

// identified answers callers that are not known, and puts the others into the context of their request. Handlers check
// their rights, because the domain is in the request.
func (h *Handler) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open[r.URL.Path] || r.URL.Path == explainPath {
			next.ServeHTTP(w, r)
			return
		}
		header := "Authorization"
		if r.URL.Path == forwardAuthPath {
			header = access.ProxyHeader
		}
		known, err := h.opts.Access.Identify(r, header)
		if err != nil {
			access.Fail(w, err)
			return
		}
		next.ServeHTTP(w, known)
	})
}
