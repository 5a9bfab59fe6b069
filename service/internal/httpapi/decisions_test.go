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
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/wire"
)

// tokensAt returns tokens of a key and a clock.
func tokensAt(now func() time.Time, key string) *wire.Tokens {
	tokens := wire.NewTokens([]byte(key))
	tokens.Now = now
	return tokens
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
	servertest.Check(t, json.Unmarshal(w.Body.Bytes(), &body))
	return body
}

const (
	ann     = `{"domain":"d","entries":[{"key":"user","value":"ann"}]}`
	annTwo  = `{"domain":"d","entries":[{"key":"user","value":"ann"}],"cost":2}`
	annJob  = `{"domain":"d","entries":[{"key":"user","value":"ann"}],"cost":2,"id":"job"}`
	annFour = `{"domain":"d","entries":[{"key":"user","value":"ann"}],"cost":4}`
)

const fixed = `{"domain":"d","entries":[{"key":"fixed"}],"wait_up_to":5}`

// waiting returns a body like ann's that can wait for a number of seconds, or, after a comma, with other fields.
func waiting(seconds string) string {
	return strings.TrimSuffix(ann, "}") + `,"wait_up_to":` + seconds + `}`
}

func waitingHandler(t *testing.T) (*Handler, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	return newHandler(t, memstore.New(&memstore.Options{Now: c.read}), &Options{
		MaxWait: time.Hour, Access: servertest.Gate(t, "anonymous: {allow: [decide, book]}"),
	}), c
}

// Requests that can wait are let through at once, each with the time of its turn:
// at most three in any ten seconds, four in any minute, and nobody before those who came first.
func TestRequestsWaitInOrder(t *testing.T) {
	h, c := waitingHandler(t)
	for i, want := range []float64{0, 0, 0, 10, 60, 60} {
		if i == 5 {
			c.now = c.now.Add(time.Second)
			want = 59
		}
		said := post(t, h, "/v1/allow", waiting("60"), 200)
		if said["start_after"] != want || said["retry_after"] != 0.0 {
			t.Errorf("request %d starts after %v, want %v: %v", i, said["start_after"], want, said)
		}
	}
	if said := post(t, h, "/v1/allow", waiting("58.999"), 429); said["start_after"] != nil || said["retry_after"] != 59.0 {
		t.Errorf("a request that cannot wait that long: %v", said)
	}
	if said := post(t, h, "/v1/allow", ann, 429); said["start_after"] != nil {
		t.Errorf("a request that cannot wait: %v", said)
	}
	for _, path := range []string{"/v1/allow", "/v1/reserve"} { // one with an ID is booked once
		first := post(t, h, path, waiting(`3600,"id":"job"`), 200)["start_after"].(float64)
		c.now = c.now.Add(time.Second)
		for _, wait := range []string{"60", "1", "0"} {
			if again := post(t, h, path, waiting(wait+`,"id":"job"`), 200)["start_after"]; again != first-1 {
				t.Errorf("%s: repeated a second later, with a wait of %s s, it starts after %v, at first %v", path, wait, again, first)
			}
		}
	}
}

// Bookings of callers who never come hold a subject for seconds, unless they have the right to book further.
func TestBookingsHoldASubjectForSeconds(t *testing.T) {
	further, c := waitingHandler(t)
	everyone := newHandler(t, memstore.New(&memstore.Options{Now: c.read}), &Options{MaxWait: time.Hour})
	for h, held := range map[*Handler]bool{everyone: false, further: true} {
		for range 62 {
			for _, path := range []string{"/v1/allow", "/v1/reserve"} {
				send(h, http.MethodPost, path, waiting("3600"))
			}
		}
		c.now = c.now.Add(config.DefaultMaxWait + time.Minute) // the last booking, and the window
		if said := post(t, h, "/v1/peek", ann, 200); said["allowed"] == held {
			t.Errorf("a minute later, with the right to book further %v: %v", held, said)
		}
	}
}

// A wait that the service cannot keep is an error at once, and that what does not bind does not wait.
func TestWrongWaits(t *testing.T) {
	h, _ := waitingHandler(t)
	for _, wrong := range []string{"-1", "-1e-9", "3601", `"5"`, "1e9", "1e400", "9e999", "true", "{}"} {
		post(t, h, "/v1/allow", waiting(wrong), 400)
		post(t, h, "/v1/reserve", waiting(wrong), 400)
	}
	for _, right := range []string{"6e1", "1.5E+1", "null"} {
		post(t, h, "/v1/allow", waiting(right), 200)
	}
	post(t, h, "/v1/allow", waiting("5e-05"), 429)
	post(t, h, "/v1/peek", waiting("3601"), 200) // charges nothing, so nobody waits
	post(t, h, "/v1/peek", fixed, 200)
	if said := fmt.Sprint(post(t, h, "/v1/allow", fixed, 422)["error"]); !strings.Contains(said, "has no queue") || !strings.Contains(said, "fixed-window") {
		t.Errorf("a rule without a queue: %s", said)
	}
	none := newHandler(t, memstore.New(nil), nil)
	if said := fmt.Sprint(post(t, none, "/v1/allow", waiting("1"), 400)["error"]); !strings.Contains(said, "--max-wait") {
		t.Errorf("a service where nobody waits: %s", said)
	}
	post(t, none, "/v1/allow", waiting("0"), 200)
	watched := `{"domain":"d","entries":[{"key":"watched"}],"wait_up_to":60}`
	for range 2 {
		if said := post(t, h, "/v1/allow", watched, 200); said["start_after"] != 0.0 {
			t.Errorf("a rule that does not bind: %v", said)
		}
	}
	if said := post(t, h, "/v1/allow", `{"domain":"d","entries":[{"key":"nobody"}],"wait_up_to":60}`, 200); said["start_after"] != 0.0 {
		t.Errorf("no rule: %v", said)
	}
}

func TestEveryPathReportsABlock(t *testing.T) {
	c := &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	h := New(servertest.Decider(t, memstore.New(&memstore.Options{Now: c.read}),
		"domain: d\ndescriptors: [{key: user, limits: [1/1s], block: {refusals: 2, for: 10m}}]\n"), nil)
	for _, x := range []struct {
		path    string
		status  int
		blocked any
	}{{"allow", 200, nil}, {"allow", 429, nil}, {"allow", 429, true}, {"reserve", 429, true}, {"peek", 200, true}} {
		said := post(t, h, "/v1/"+x.path, ann, x.status)
		if said["blocked"] != x.blocked || x.blocked != nil && (said["remaining"] != 0.0 || said["retry_after"] != 600.0) {
			t.Errorf("%s: %v; blocked should be %v", x.path, said, x.blocked)
		}
	}
	w := auth(h, "domain=d&descriptor=user=ann")
	if w.Code != 429 || w.Header().Get("Retry-After") != "600" || !strings.Contains(w.Body.String(), `"detail":"There were too many refused requests. Send it again in 600 seconds."`) {
		t.Errorf("forward-auth: %d %v %s", w.Code, w.Header(), w.Body)
	}
}
