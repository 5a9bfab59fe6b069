// Package dashboard serves the dashboard of the admin port, a page that shows what the port's endpoints return. The
// page is plain HTML, CSS and JavaScript in files beside this one. It has no build step and loads nothing from other
// origins.
package dashboard

import (
	"embed"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// policy restricts the page to its own origin and to scripts from files.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

//go:embed page
var page embed.FS

// kinds are the content types by extension. They are fixed here because the machine's own table may label a script as
// text.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// New returns a handler for GET /dashboard and the paths below it.
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
		_, _ = w.Write(content) // the client may have disconnected
	})
}
