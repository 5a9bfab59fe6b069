package admin

import (
	"embed"
	"net/http"
	"path"
	"strconv"
	"strings"

	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/wire"
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

// top is how many subjects of each order a snapshot has.
const top = 15

// A snapshot is the state of the service.
type snapshot struct {
	At            wire.Instant   `json:"at"`
	Since         wire.Instant   `json:"since"` // when counting began
	Authenticated bool           `json:"authenticated"`
	Requests      stats.Series   `json:"requests"`
	Rules         []stats.Series `json:"rules"`
	// Latency is how long the store took to decide, and with it the network and the queue in front of it.
	Latency stats.Latency `json:"latency"`
	Store   storeState    `json:"store"`
	Top     *hottest      `json:"top"` // null to callers without access
}

// A hottest is the subjects that request the most units, and those that are refused most.
type hottest struct {
	Since   wire.Instant    `json:"since"`
	Units   []stats.Subject `json:"units"`
	Refused []stats.Subject `json:"refused"`
}

// state answers the state of the service, with subjects for an authenticated caller.
func (h *handler) state(w http.ResponseWriter, r *http.Request) {
	snap := h.Stats.Snapshot()
	known := h.Guard.by(r) != ""
	now := snapshot{
		At: wire.Instant(snap.At), Since: wire.Instant(snap.Since), Authenticated: known,
		Requests: snap.Requests, Rules: snap.Rules, Latency: snap.Latency, Store: h.storeState(known),
	}
	if known {
		units, since := h.Stats.Hottest(stats.ByUnits, top)
		refused, _ := h.Stats.Hottest(stats.ByRefused, top)
		now.Top = &hottest{wire.Instant(since), units, refused}
	}
	wire.Write(w, http.StatusOK, now)
}
