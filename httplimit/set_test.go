package httplimit_test

import (
	"net/http"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
)

// Set writes the fields of a decision without a middleware; they are those that a middleware writes.
func TestFieldsOfADecisionMadeElsewhere(t *testing.T) {
	clock := newClock()
	never := sash.LimitResult{Limit: sash.Limit{Name: "none", Units: 0, Window: time.Minute}, Refused: true}
	limiter := newLimiter(t, clock.store(), nil, sash.Every(1, 10*time.Second), sash.PerCalendar(9, sash.CalendarHour, time.UTC))
	allow := func() []sash.LimitResult {
		res, err := limiter.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return res.Limits()
	}
	first := allow()
	clock.Advance(2500 * time.Millisecond)
	refused := allow()
	for _, c := range []struct {
		name          string
		limits        []sash.LimitResult
		policy, state string
	}{
		{"admitted", first, `"1/10s";q=1;w=10, "9/hour@UTC";q=9;w=3600`, `"1/10s";r=0;t=10, "9/hour@UTC";r=8;t=2998`},
		{"refused", refused, `"1/10s";q=1;w=10, "9/hour@UTC";q=9;w=3600`, `"1/10s";r=0;t=8, "9/hour@UTC";r=8;t=8`},
		{"refused for ever", []sash.LimitResult{never}, `"none";q=0;w=60`, `"none";r=0;t=0`},
		{"no window", []sash.LimitResult{{Limit: sash.Limit{Name: "none", Units: 1}, Algorithm: sash.FixedWindow}}, `"none";q=1;w=0`, `"none";r=0;t=0`},
		{"no limits", nil, "", ""},
	} {
		h := http.Header{}
		httplimit.Draft11.Set(h, c.limits, clock.Now())
		if h.Get("RateLimit-Policy") != c.policy || h.Get("RateLimit") != c.state {
			t.Errorf("%s: %q, want %q and %q", c.name, h, c.policy, c.state)
		}
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
