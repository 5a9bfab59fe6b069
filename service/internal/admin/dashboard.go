package admin

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

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

// Bounds of streams of events.
const (
	maxStreams   = 20
	maxPublic    = 10 // open streams with which a caller without access may open one; the others are for those with access
	eventEvery   = time.Second
	eventTimeout = 5 * time.Second // for a client to take one event
	eventTop     = 15              // subjects of each order in an event
)

// events streams the state of the service, once a second, until the client disconnects or the service ends.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	if !h.enter(h.Guard.by(r) != "") {
		w.Header().Set("Retry-After", "5")
		wire.Fail(w, http.StatusServiceUnavailable, "too many streams are open: close another page, or send the admin's token")
		return
	}
	defer func() { <-h.streams }()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the request is complete; a server without deadlines has none to clear
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not wait for more
	w.WriteHeader(http.StatusOK)

	ticker := time.NewTicker(eventEvery)
	defer ticker.Stop()
	for {
		text, err := json.Marshal(h.snapshot(r))
		if err != nil {
			return // impossible: every snapshot can be marshalled
		}
		_ = control.SetWriteDeadline(time.Now().Add(eventTimeout))
		if _, err := fmt.Fprintf(w, "event: state\ndata: %s\n\n", text); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-h.Ends:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// enter takes a place for a stream, and reports whether there was one.
func (h *handler) enter(known bool) bool {
	if !known && len(h.streams) >= maxPublic {
		return false
	}
	select {
	case h.streams <- struct{}{}:
		return true
	default:
		return false
	}
}

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
	Top     *top          `json:"top"` // null to callers without access
}

// A top is the subjects that request the most units, and those that are refused most.
type top struct {
	Since   wire.Instant    `json:"since"`
	Units   []stats.Subject `json:"units"`
	Refused []stats.Subject `json:"refused"`
}

// snapshot returns the state of the service, with subjects for an authenticated caller.
func (h *handler) snapshot(r *http.Request) snapshot {
	snap := h.Stats.Snapshot()
	known := h.Guard.by(r) != "" // checked for every event: a session may end while the stream goes on
	now := snapshot{
		At: wire.Instant(snap.At), Since: wire.Instant(snap.Since), Authenticated: known,
		Requests: snap.Requests, Rules: snap.Rules, Latency: snap.Latency, Store: h.state(known),
	}
	if known {
		units, since := h.Stats.Hottest(stats.ByUnits, eventTop)
		refused, _ := h.Stats.Hottest(stats.ByRefused, eventTop)
		now.Top = &top{wire.Instant(since), units, refused}
	}
	return now
}
