package admin

import (
	"embed"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// contentPolicy restricts the dashboard to its own origin and to scripts from files.
const contentPolicy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// page is the dashboard, which shows what the endpoints return: plain HTML, CSS and JavaScript, without a build step.
//
//go:embed page
var page embed.FS

// kinds are the content types by extension. They are fixed here because the machine's own table may label a script as
// text.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// dashboard serves GET /dashboard and the paths below it.
func dashboard(w http.ResponseWriter, r *http.Request) {
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
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(content) // the client may have disconnected
}
