package admin

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/degrade"
)

// An operator forces the state of the store, for a time or until it is lifted, and everybody sees it.
func TestForceTheStore(t *testing.T) {
	w := begin(t, one)
	store, err := failover.New(memstore.New(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.server.Config.Handler = New(w.decider, &Options{Guard: NewGuard(one, nil), Forcing: store, Log: slog.New(slog.NewTextHandler(w.logs, nil)), Store: func() degrade.Report {
		r := degrade.Report{Health: degrade.Health{Status: "ok", Store: store.State().String()}}
		if f, ok := store.Forced(); ok {
			r.Forced = &f
		}
		return r
	}})
	type answer struct {
		Store  string
		Forced *struct {
			State        string
			Since, Until *time.Time
			By, Reason   *string
		}
	}
	for _, state := range []string{"down", "up"} {
		var now answer
		w.says(&now, 200, "POST", "/admin/v1/store", `{"state":"`+state+`","expires":"10m","reason":"a migration"}`)
		if now.Store != state || now.Forced == nil || now.Forced.State != state || time.Until(*now.Forced.Until) < 9*time.Minute || now.Forced.Since == nil {
			t.Errorf("%s: %+v", state, now)
		}
		if now.Forced.By == nil || *now.Forced.By != "token 1" || *now.Forced.Reason != "a migration" {
			t.Errorf("%s, by whom and why: %+v", state, now.Forced)
		}
		if _, text := w.send("GET", "/admin/v1/store", "", "Authorization: none"); !strings.Contains(text, `"by":null,"reason":null`) {
			t.Errorf("strangers read by whom it is forced: %s", text)
		}
		if _, text := w.send("GET", "/metrics", ""); !strings.Contains(text, "\nsash_store_forced{state=\""+state+"\"} 1\n") {
			t.Errorf("%s: %s", state, grep(text, "sash_store_forced"))
		}
	}
	var now answer
	w.says(&now, 200, "POST", "/admin/v1/store", `{"state":"down"}`)
	if now.Store != "down" || now.Forced.Until != nil {
		t.Errorf("until it is lifted: %+v", now)
	}
	now = answer{}
	w.says(&now, 200, "DELETE", "/admin/v1/store", "")
	if now.Store != "up" || now.Forced != nil {
		t.Errorf("lifted: %+v", now)
	}
	for _, wrong := range []string{`{}`, `{"state":"probing"}`, `{"state":"down","expires":"soon"}`, `{"state":"down","expires":"-1h"}`} {
		if res, text := w.send("POST", "/admin/v1/store", wrong); res.StatusCode != 400 {
			t.Errorf("%s: %d %s", wrong, res.StatusCode, text)
		}
	}
	if _, ok := store.Forced(); ok {
		t.Error("a wrong request forced a state")
	}
	if logs := w.logs.String(); strings.Count(logs, "is forced") != 3 || strings.Count(logs, "is not forced any more") != 1 ||
		!strings.Contains(logs, `reason="a migration"`) || !strings.Contains(logs, `by="token 1"`) {
		t.Errorf("the log is %s", logs)
	}
}
