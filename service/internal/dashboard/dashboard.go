// Package dashboard is the page for those who watch a service: it shows what the admin port's endpoints say. The page
// is plain HTML, CSS and JavaScript, as files beside this one: nothing builds it, and it asks nobody but its own
// origin.
package dashboard

import (
	"embed"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// policy lets the page load and ask its own origin and nothing else, and run no script that is not a file of it.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

//go:embed page
var page embed.FS

// kinds are not asked of the machine, which may call a script text.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// New returns a handler for GET /dashboard and what lies below it.
func New() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "index.html"
		if r.URL.Path != "/dashboard" {
			name = strings.TrimPrefix(r.URL.Path, "/dashboard/")
		}
		content, err := page.ReadFile("page/" + name)
		kind := kinds[path.Ext(name)]
		if err != nil || kind == "" {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Length", strconv.Itoa(len(content)))
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(content) // a client that is gone is no concern of ours
	})
}
