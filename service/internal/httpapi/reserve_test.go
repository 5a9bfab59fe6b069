package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// fleet returns two instances on one store with one key, and their clock.
func fleet(t *testing.T) (here, there *Handler, c *clock) {
	t.Helper()
	c = &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	store := memstore.New(&memstore.Options{Now: c.read})
	instance := func() *Handler {
		return newHandler(t, store, &Options{Tokens: wire.NewTokens([]byte("one secret of all instances")), Now: c.read})
	}
	return instance(), instance(), c
}

func post(t *testing.T, h http.Handler, path, body string, status int) map[string]any {
	t.Helper()
	w := send(h, http.MethodPost, path, body)
	if w.Code != status {
		t.Errorf("%s %s: %d %s, want %d", path, body, w.Code, w.Body, status)
	}
	return answer(t, w)
}

func answer(t testing.TB, w *httptest.ResponseRecorder) (body map[string]any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	return body
}

const (
	ann     = `{"domain":"d","entries":[{"key":"user","value":"ann"}]}`
	annTwo  = `{"domain":"d","entries":[{"key":"user","value":"ann"}],"cost":2}`
	annJob  = `{"domain":"d","entries":[{"key":"user","value":"ann"}],"cost":2,"id":"job"}`
	annFour = `{"domain":"d","entries":[{"key":"user","value":"ann"}],"cost":4}`
)

func TestAReservationOfOneInstanceIsSettledByAnother(t *testing.T) {
	here, there, _ := fleet(t)
	token := post(t, here, "/v1/reserve", annTwo, 200)["token"].(string)
	refused := post(t, there, "/v1/reserve", annTwo, 429)
	if refused["token"] != nil || refused["refused_by"] != "3/10s" {
		t.Errorf("%v", refused)
	}
	settle := fmt.Sprintf(`{"token":%q,"used":1}`, token)
	for range 2 {
		if said := post(t, there, "/v1/settle", settle, 200); said["settled"] != true {
			t.Errorf("%v", said)
		}
	}
	post(t, here, "/v1/cancel", fmt.Sprintf(`{"token":%q}`, token), 200)
	if left := post(t, here, "/v1/peek", ann, 200)["remaining"]; left != 2.0 {
		t.Errorf("%v left of 3 after one was used", left)
	}
	alone, _ := virtual(t)
	post(t, alone, "/v1/settle", settle, 403)
}

func TestAReservationExpires(t *testing.T) {
	here, _, c := fleet(t)
	settle := fmt.Sprintf(`{"token":%q,"used":1}`, post(t, here, "/v1/reserve", annTwo, 200)["token"])
	c.now = c.now.Add(time.Minute + time.Minute) // its longest window, and what clocks may differ
	post(t, here, "/v1/settle", settle, 200)
	c.now = c.now.Add(time.Microsecond)
	said := post(t, here, "/v1/settle", settle, 410)
	if text := fmt.Sprint(said["error"]); !strings.Contains(text, "expired") {
		t.Error(text)
	}
}

func TestARequestWithAnIDIsChargedOnce(t *testing.T) {
	here, there, _ := fleet(t)
	first, again := send(here, http.MethodPost, "/v1/reserve", annJob), send(there, http.MethodPost, "/v1/reserve", annJob)
	if first.Code != 200 || first.Body.String() != again.Body.String() {
		t.Errorf("%d %s, and again %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	post(t, here, "/v1/cancel", fmt.Sprintf(`{"token":%q}`, answer(t, again)["token"]), 200)
	for range 3 {
		if said := post(t, there, "/v1/allow", annJob, 200); said["remaining"] != 1.0 {
			t.Errorf("%v", said)
		}
	}
	post(t, here, "/v1/allow", ann, 200)
	post(t, here, "/v1/allow", ann, 429)
}

func TestExplanations(t *testing.T) {
	h, c := virtual(t)
	ask := func(body string) (said wire.Explanation) {
		t.Helper()
		w := send(h, http.MethodPost, "/v1/explain", body)
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != 200 {
			t.Fatalf("%v: %d %s", err, w.Code, w.Body)
		}
		return said
	}
	post(t, h, "/v1/allow", annTwo, 200)
	c.now = c.now.Add(4 * time.Second)
	expect(t, send(h, http.MethodPost, "/v1/explain", annTwo), 200, "",
		`{"summary":"refused: 3/10s has no room for 2","steps":[{"key":"user","value":"ann","matched":"user","how":"key alone"}],`+
			`"rule":{"path":"d / user","limits":"3/10s and 4/1m by sliding-log","subject":"d:user:ann","metric":"d.user"},"cost":2,`+
			`"usage":[{"name":"3/10s","units":3,"window":10,"remaining":1,"used":2,"room":false,"release_after":6,"reset_after":6},`+
			`{"name":"4/1m","units":4,"window":60,"remaining":2,"used":2,"room":true,"release_after":56,"reset_after":56}],`+
			`"verdict":{"allowed":false,"remaining":1,"retry_after":6,"reset_after":56,"refused_by":"3/10s",`+
			`"limits":[{"name":"3/10s","units":3,"window":10,"remaining":1},{"name":"4/1m","units":4,"window":60,"remaining":2}],"at":"2026-01-01T23:59:04.000000Z","source":"store"}}`)
	if left := post(t, h, "/v1/peek", ann, 200)["remaining"]; left != 1.0 {
		t.Errorf("%v left: an explanation was charged", left)
	}
	post(t, h, "/v1/allow", `{"domain":"d","entries":[{"key":"watched"}]}`, 200)
	for body, want := range map[string]string{
		ann:     "allowed: every limit has room for 1",
		annFour: "never allowed: sash: cost above the limit: a cost of 4 units can never fit into 3/10s",
		`{"domain":"d","entries":[{"key":"nobody","value":"x"}]}`:                         `allowed, and not counted: no descriptor fits entry 1, "nobody"="x"`,
		`{"domain":"d","entries":[{"key":"user","value":"ann"},{"key":"y","value":"z"}]}`: `allowed, and not counted: no descriptor fits entry 2, "y"="z"`,
		`{"domain":"d","entries":[{"key":"watched"}]}`:                                    "allowed, because the rule is only tried out: 1/10s has no room for 1",
		`{"domain":"d","entries":[{"key":"watched"}],"cost":2}`:                           "allowed, and not counted: the rule is only tried out, and nothing is known of it now",
	} {
		if said := ask(body); said.Summary != want {
			t.Errorf("%s: %q, want %q", body, said.Summary, want)
		}
	}
	if said := ask(annFour); said.Decision != nil || said.Rule == nil || len(said.Usage) != 0 {
		t.Errorf("%+v", said)
	}
}

// A ban refuses whatever is asked, and an explanation says so.
func TestABanIsExplained(t *testing.T) {
	h, _ := virtual(t)
	entries := []config.Entry{{Key: "user", Value: "ann"}}
	h.decider.Except([]decide.Exception{{Domain: "d", Entries: entries, Until: time.Now().Add(time.Hour)}})
	said := post(t, h, "/v1/explain", ann, 200)
	if said["summary"] != "refused: an operator has banned d:user:ann" || len(said["usage"].([]any)) != 0 {
		t.Errorf("%v", said)
	}
	if said := post(t, h, "/v1/reserve", ann, 429); said["token"] != nil || said["refused_by"] != "ban" {
		t.Errorf("%v", said)
	}
	if said := post(t, h, "/v1/peek", ann, 200); said["allowed"] != false {
		t.Errorf("%v", said)
	}
}
