package httplimit_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/internal/judge"
)

// 3 units in 10 s and 100 in an hour. The clock stands at …:00.250. Requests at 0 s, 4 s and 4 s use up
// the first; at 4 s the first unit is released 6 s later, at …:10.250.
func TestDialects(t *testing.T) {
	for _, c := range []struct {
		dialect httplimit.Dialect
		// first is after one unit, third after three, refused at the fourth.
		first, third, refused fields
	}{
		{
			httplimit.Draft11,
			// r/q of the window: 2/3 of 10 s is 6.67 s, but the release is 10 s away; 99 % of an hour is 3564 s,
			// and the release an hour away.
			fields{"RateLimit-Policy": `"burst";q=3;w=10, "100/1h";q=100;w=3600`, "RateLimit": `"burst";r=2;t=10, "100/1h";r=99;t=3600`},
			fields{"RateLimit-Policy": `"burst";q=3;w=10, "100/1h";q=100;w=3600`, "RateLimit": `"burst";r=0;t=6, "100/1h";r=97;t=3596`},
			fields{"RateLimit-Policy": `"burst";q=3;w=10, "100/1h";q=100;w=3600`, "RateLimit": `"burst";r=0;t=6, "100/1h";r=97;t=6`, "Retry-After": "6"},
		},
		{
			httplimit.Draft07,
			fields{"RateLimit": "limit=3, remaining=2, reset=10", "RateLimit-Policy": "3;w=10, 100;w=3600"},
			fields{"RateLimit": "limit=3, remaining=0, reset=6", "RateLimit-Policy": "3;w=10, 100;w=3600"},
			fields{"RateLimit": "limit=3, remaining=0, reset=6", "RateLimit-Policy": "3;w=10, 100;w=3600", "Retry-After": "6"},
		},
		{
			httplimit.Draft06,
			fields{"RateLimit-Limit": "3", "RateLimit-Remaining": "2", "RateLimit-Reset": "10", "RateLimit-Policy": "3;w=10, 100;w=3600"},
			fields{"RateLimit-Limit": "3", "RateLimit-Remaining": "0", "RateLimit-Reset": "6", "RateLimit-Policy": "3;w=10, 100;w=3600"},
			fields{"RateLimit-Limit": "3", "RateLimit-Remaining": "0", "RateLimit-Reset": "6", "RateLimit-Policy": "3;w=10, 100;w=3600", "Retry-After": "6"},
		},
		{
			httplimit.LegacyUnix, // 1772367010.250 is rounded up
			fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "1772367011"},
			fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772367011"},
			fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772367011", "Retry-After": "6"},
		},
		{
			httplimit.LegacyRFC3339,
			fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "2026-03-01T12:10:11Z"},
			fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2026-03-01T12:10:11Z"},
			fields{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2026-03-01T12:10:11Z", "Retry-After": "6"},
		},
		{httplimit.NoFields, fields{}, fields{}, fields{"Retry-After": "6"}},
	} {
		t.Run(c.dialect.String(), func(t *testing.T) {
			clock := newClock()
			burst := sash.Every(3, 10*time.Second)
			burst.Name = "burst"
			h := newMiddleware(t, newLimiter(t, clock.store(), nil, burst, sash.PerHour(100)), httplimit.PeerAddress,
				&httplimit.Options{Dialect: c.dialect})(ok)
			wantFields(t, get(h, "GET", "/", nil), c.first)
			clock.Advance(4 * time.Second)
			wantStatus(t, get(h, "GET", "/", nil), 200)
			wantFields(t, get(h, "GET", "/", nil), c.third)
			wantFields(t, get(h, "GET", "/", nil), c.refused)
		})
	}
}

// A dialect with room for one limit shows the refusing one with the longest retry time, or the one of which least is left.
func TestDialectsOfOneLimitShowTheTightest(t *testing.T) {
	left := func(n int64) sash.LimitResult { return sash.LimitResult{Remaining: n} }
	refused := func(d time.Duration) sash.LimitResult { return sash.LimitResult{Refused: true, RetryAfter: d} }
	for name, c := range map[string]struct {
		first, second sash.LimitResult // of 1 unit, and of 2
		limit         string
	}{
		"least left":                 {left(1), left(1), "2"},
		"least left is the first":    {left(0), left(1), "1"},
		"only the second refuses":    {left(1), refused(time.Hour), "2"},
		"only the first refuses":     {refused(time.Hour), left(0), "1"},
		"the second takes longer":    {refused(time.Minute), refused(time.Hour), "2"},
		"the first takes the longer": {refused(time.Hour), refused(time.Minute), "1"},
	} {
		h := http.Header{}
		c.first.Limit, c.second.Limit = sash.PerMinute(1), sash.PerHour(2)
		httplimit.Draft06.Set(h, []sash.LimitResult{c.first, c.second}, start)
		if got := h.Get("RateLimit-Limit"); got != c.limit {
			t.Errorf("%s: the limit shown is %s", name, got)
		}
		if retry := max(c.first.RetryAfter, c.second.RetryAfter); retry > 0 && h.Get("RateLimit-Reset") != strconv.Itoa(int(retry.Seconds())) {
			t.Errorf("%s: the reset is %s, want %v", name, h.Get("RateLimit-Reset"), retry)
		}
	}
}

func TestCalendarFields(t *testing.T) {
	berlin := must(time.LoadLocation("Europe/Berlin"))(t)
	for _, c := range []struct {
		name   string
		at     time.Time
		limit  sash.Limit
		policy string
		state  string
	}{
		{"a day of 23 hours", time.Date(2026, 3, 29, 12, 0, 0, 0, berlin), sash.PerCalendar(9, sash.CalendarDay, berlin),
			`"9/day@Europe/Berlin";q=9;w=82800`, `"9/day@Europe/Berlin";r=8;t=43200`},
		{"February", time.Date(2026, 2, 28, 23, 0, 0, 0, time.UTC), sash.PerCalendar(9, sash.CalendarMonth, nil),
			`"9/month@UTC";q=9;w=2419200`, `"9/month@UTC";r=8;t=3600`},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := clock{judge.NewClock(c.at)}
			h := newMiddleware(t, newLimiter(t, clock.store(), nil, c.limit), httplimit.PeerAddress, nil)(ok)
			res := get(h, "GET", "/", nil)
			wantField(t, res, "RateLimit-Policy", c.policy)
			wantField(t, res, "RateLimit", c.state)
		})
	}
}

// What a String of RFC 9651 cannot have is escaped: see TestFieldsParseBack in internal/roundtrip.
func TestNamesAreEscaped(t *testing.T) {
	limit := sash.PerMinute(5)
	limit.Name = "t\u00e4glich"
	layer := httplimit.Layer{Name: `quo"te\`, Key: httplimit.PeerAddress}
	res := get(newLayers(t, newLimiter(t, newClock().store(), nil, limit), nil, layer)(ok), "GET", "/", nil)
	wantField(t, res, "RateLimit", `"quo\"te\\:t%C3%A4glich";r=4;t=60`)
}

func TestFieldsOfNestedMiddlewares(t *testing.T) {
	clock := newClock()
	outer := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.PerHour(5)), httplimit.Shared("all"), nil)
	inner := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.PerMinute(1)), httplimit.PeerAddress, nil)
	h := outer(inner(ok))
	res := get(h, "GET", "/", nil)
	if got := strings.Join(res.header.Values("RateLimit"), ", "); got != `"5/1h";r=4;t=3600, "1/1m";r=0;t=60` {
		t.Errorf("%s; want the limits of both", got)
	}
	res = get(h, "GET", "/", nil)
	wantStatus(t, res, 429)
	if got := res.header.Values("RateLimit"); len(got) != 1 || got[0] != `"1/1m";r=0;t=60` {
		t.Errorf("%q; the outer limit's time would be beyond Retry-After", got)
	}
}

// A fixed window ends at a multiple of its length, whatever remains of its units.
func TestResetOfAFixedWindowIsItsEnd(t *testing.T) {
	clock := newClock() // a quarter of a second past a full minute
	clock.Advance(45 * time.Second)
	limiter := newLimiter(t, clock.store(), &sash.Options{Algorithm: sash.FixedWindow}, sash.PerMinute(3))
	for used := range 4 {
		res, err := limiter.Allow(t.Context(), "k")
		if err != nil || res.Allowed != (used < 3) {
			t.Fatalf("call %d: %+v, %v", used, res, err)
		}
		h := http.Header{}
		httplimit.LegacyUnix.Set(h, res.Limits(), res.At)
		if got, want := h.Get("X-RateLimit-Reset"), "1772367060"; got != want {
			t.Errorf("call %d: the reset is %s, want %s", used, got, want)
		}
		clock.Advance(time.Second)
	}
}

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

func TestABlockedClientIsToldSo(t *testing.T) {
	opts := &sash.Options{Block: sash.Block{Refusals: 1, For: time.Hour}}
	h := newMiddleware(t, newLimiter(t, newClock().store(), opts, sash.PerMinute(1)), httplimit.PeerAddress, nil)(ok)
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
