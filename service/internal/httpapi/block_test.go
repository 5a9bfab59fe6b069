package httpapi

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
)

// Every path that answers decisions reports that a subject is blocked.
func TestEveryPathReportsABlock(t *testing.T) {
	c := &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	decider := servertest.Decider(t, memstore.New(&memstore.Options{Now: c.read}), `
domain: d
descriptors:
- {key: user, limits: [1/1s], block: {refusals: 2, for: 10m}}
- {key: tried, limits: [1/1s], block: {refusals: 2, for: 10m}, shadow_mode: true}
`)
	h := New(decider, &Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Operator: newHandler(t, memstore.New(nil), nil).opts.Operator})
	tried := strings.Replace(ann, "user", "tried", 1)
	blocked := func(said map[string]any, want bool) {
		t.Helper()
		if _, is := said["blocked"]; is != want || want && (said["blocked"] != true || said["remaining"] != 0.0 || said["retry_after"] != 600.0) {
			t.Errorf("%v; blocked should be %v", said, want)
		}
	}
	blocked(post(t, h, "/v1/allow", ann, 200), false)
	blocked(post(t, h, "/v1/allow", ann, 429), false)
	blocked(post(t, h, "/v1/allow", ann, 429), true)
	blocked(post(t, h, "/v1/allow", ann, 429), true)
	blocked(post(t, h, "/v1/reserve", ann, 429), true)
	blocked(post(t, h, "/v1/peek", ann, 200), true)
	why := post(t, h, "/v1/explain", ann, 200)
	blocked(why["verdict"].(map[string]any), true)
	if why["summary"] != "refused: the subject is blocked, because it was refused too often" {
		t.Errorf("why: %v", why["summary"])
	}
	for range 3 {
		post(t, h, "/v1/allow", tried, 200)
	}
	blocked(post(t, h, "/v1/allow", tried, 200), true)
	if why := post(t, h, "/v1/explain", tried, 200); why["summary"] != "allowed, because the rule is only tried out: the subject is blocked" {
		t.Errorf("why: %v", why["summary"])
	}
	w := auth(h, "domain=d&descriptor=user=ann")
	if w.Code != 429 || w.Header().Get("Retry-After") != "600" || !strings.Contains(w.Body.String(), `"detail":"There were too many refused requests. Send it again in 600 seconds."`) {
		t.Errorf("forward-auth: %d %v %s", w.Code, w.Header(), w.Body)
	}
	c.now = c.now.Add(10 * time.Minute)
	blocked(post(t, h, "/v1/allow", ann, 200), false)
}
