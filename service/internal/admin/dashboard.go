package admin

import (
	"embed"
	"encoding/json"
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

	send := func(kind string, body any) bool {
		text, err := json.Marshal(body)
		if err != nil {
			return false // impossible: every event can be marshalled
		}
		_ = control.SetWriteDeadline(time.Now().Add(eventTimeout))
		event := append([]byte("event: "+kind+"\ndata: "), text...)
		if _, err = w.Write(append(event, "\n\n"...)); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	ticker := time.NewTicker(eventEvery)
	defer ticker.Stop()
	for send("state", h.event(r)) {
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

// event returns the state of the service, with subjects for an authenticated caller.
func (h *handler) event(r *http.Request) wire.Event {
	snap := h.Stats.Snapshot()
	known := h.Guard.by(r) != "" // checked for every event: a session may end while the stream goes on
	event := wire.Event{
		At: wire.Instant(snap.At), Since: wire.Instant(snap.Since), Authenticated: known,
		Requests: snap.Requests, Rules: snap.Rules, Latency: snap.Latency, Store: h.state(known),
	}
	if known {
		units, since := h.Stats.Hottest(stats.ByUnits, eventTop)
		refused, _ := h.Stats.Hottest(stats.ByRefused, eventTop)
		event.Top = &wire.Top{Since: wire.Instant(since), Units: units, Refused: refused}
	}
	return event
}
