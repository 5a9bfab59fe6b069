package httplimit_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
)

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies"`
}

func problemOf(t testing.TB, res answer) (p problem) {
	t.Helper()
	wantField(t, res, "Content-Type", "application/problem+json")
	if err := json.Unmarshal([]byte(res.body), &p); err != nil {
		t.Fatalf("%s: %v", res.body, err)
	}
	if p.Status != res.status || p.Type == "" || p.Title == "" {
		t.Errorf("problem %s with status %d", res.body, res.status)
	}
	return p
}

func TestARefusalNamesEveryLimitThatRefused(t *testing.T) {
	clock := newClock()
	h := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.PerMinute(1), sash.PerHour(1), sash.PerDay(9)), httplimit.PeerAddress, nil)(ok)
	wantStatus(t, get(h, "GET", "/", nil), 200)
	p := problemOf(t, get(h, "GET", "/", nil))
	if p.Type != httplimit.ProblemQuotaExceeded || p.Status != 429 {
		t.Errorf("problem %+v", p)
	}
	if len(p.Violated) != 2 || p.Violated[0] != "1/1m" || p.Violated[1] != "1/1h" {
		t.Errorf("violated-policies %q, want 1/1m and 1/1h", p.Violated)
	}
	if want := "Send it again in 3600 seconds."; p.Detail != want {
		t.Errorf("detail %q, want %q", p.Detail, want)
	}
}

func TestABlockedClientIsToldSo(t *testing.T) {
	clock := newClock()
	opts := &sash.Options{Block: sash.Block{Refusals: 1, For: time.Hour}}
	h := newMiddleware(t, newLimiter(t, clock.store(), opts, sash.PerMinute(1)), httplimit.PeerAddress, nil)(ok)
	wantStatus(t, get(h, "GET", "/", nil), 200)
	want := "There were too many refused requests. Send it again in 3600 seconds."
	if p := problemOf(t, get(h, "GET", "/", nil)); p.Status != 429 || p.Detail != want {
		t.Errorf("problem %+v, want detail %q", p, want)
	}
}

func TestOtherDenialsSayWhatTheClientCanDo(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), nil, sash.PerMinute(1))
	for _, c := range []struct {
		name   string
		key    httplimit.KeyFunc
		cost   int64
		status int
		detail string
	}{
		{"no key", httplimit.Header("X-Id"), 1, 400, "The request does not identify its caller."},
		{"above the limit", httplimit.PeerAddress, 2, 400, "The request costs more than a quota ever allows. Make it smaller; waiting does not help."},
		{"an empty key", func(*http.Request) (string, error) { return "", nil }, 1, 500, ""},
		{"a key function that fails", func(*http.Request) (string, error) { return "", errors.New("secret of the server") }, 1, 500, ""},
	} {
		h := newMiddleware(t, limiter, c.key, &httplimit.Options{Cost: func(*http.Request) int64 { return c.cost }})(ok)
		res := get(h, "GET", "/", nil)
		wantStatus(t, res, c.status)
		if p := problemOf(t, res); p.Type != "about:blank" || p.Detail != c.detail {
			t.Errorf("%s: problem %+v", c.name, p)
		}
	}
}

func TestADenialCanBeAnsweredOtherwise(t *testing.T) {
	clock := newClock()
	var got httplimit.Denial
	h := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.Every(1, 1500*time.Millisecond)), httplimit.PeerAddress, &httplimit.Options{
		Denied: func(w http.ResponseWriter, _ *http.Request, d httplimit.Denial) {
			got = d
			http.Error(w, "slow down", d.Status)
		},
	})(ok)
	wantStatus(t, get(h, "GET", "/", nil), 200)
	res := get(h, "GET", "/", nil)
	wantStatus(t, res, 429)
	wantField(t, res, "Retry-After", "2")
	wantField(t, res, "RateLimit", `"1/1.5s";r=0;t=2`)
	if res.body != "slow down\n" {
		t.Errorf("body %q", res.body)
	}
	by, _ := got.Result.RefusedBy()
	if got.RetryAfter != 1500*time.Millisecond || len(got.Policies) != 1 || by.Limit.Name != "1/1.5s" {
		t.Errorf("denial %+v", got)
	}
}

// An attacker who guesses passwords need not know which limit refused.
func TestWithoutFieldsAResponseNamesNoLimit(t *testing.T) {
	h := newFailures(t, newClock().store(), 1, &httplimit.Options{Dialect: httplimit.NoFields})(answers)
	get(h, "POST", "/?status=401", nil)
	res := get(h, "POST", "/?status=401", nil)
	wantStatus(t, res, 429)
	wantField(t, res, "Retry-After", "60")
	if p := problemOf(t, res); len(p.Violated) != 0 || strings.Contains(res.body, "1/1m") {
		t.Errorf("the answer names limits: %s", res.body)
	}
}
