package httplimit_test

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/internal/judge"
)

// 3 units in 10 s and 100 in an hour. The clock stands at …:00.250. Requests at 0 s, 4 s and 4 s use up
// the first; at 4 s the first unit is released 6 s later, at …:10.250.
func TestDialects(t *testing.T) {
	type fields map[string]string
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
			check := func(res answer, status int, want fields) {
				t.Helper()
				wantStatus(t, res, status)
				for _, name := range []string{"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset",
					"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
					wantField(t, res, name, want[name])
				}
			}
			check(get(h, "GET", "/", nil), 200, c.first)
			clock.Advance(4 * time.Second)
			wantStatus(t, get(h, "GET", "/", nil), 200)
			check(get(h, "GET", "/", nil), 200, c.third)
			check(get(h, "GET", "/", nil), 429, c.refused)
		})
	}
}

// Four units are left for a cost of six: more are free in 5 s, and enough only in 10 s.
func TestARefusalWithUnitsLeft(t *testing.T) {
	for dialect, want := range map[httplimit.Dialect][2]string{
		httplimit.Draft11: {"RateLimit", `"10/10s";r=4;t=5`},
		httplimit.Draft07: {"RateLimit", "limit=10, remaining=4, reset=10"},
		httplimit.Draft06: {"RateLimit-Reset", "10"},
	} {
		clock := newClock()
		cost := int64(1)
		h := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.Every(10, 10*time.Second)), httplimit.PeerAddress,
			&httplimit.Options{Dialect: dialect, Cost: func(*http.Request) int64 { return cost }})(ok)
		wantStatus(t, get(h, "GET", "/", nil), 200)
		clock.Advance(5 * time.Second)
		cost = 5
		wantStatus(t, get(h, "GET", "/", nil), 200)
		cost = 6
		res := get(h, "GET", "/", nil)
		wantStatus(t, res, 429)
		wantField(t, res, "Retry-After", "10")
		wantField(t, res, want[0], want[1])
	}
}

func TestTheLimitThatTakesLongestIsShown(t *testing.T) {
	clock := newClock()
	h := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.PerMinute(1), sash.PerHour(2)), httplimit.PeerAddress,
		&httplimit.Options{Dialect: httplimit.Draft06})(ok)
	wantField(t, get(h, "GET", "/", nil), "RateLimit-Limit", "1") // no unit left of one is less than one left of two
	clock.Advance(time.Minute)
	wantStatus(t, get(h, "GET", "/", nil), 200)
	res := get(h, "GET", "/", nil)
	wantStatus(t, res, 429)
	wantField(t, res, "RateLimit-Limit", "2")
	wantField(t, res, "RateLimit-Reset", "3540")
	wantField(t, res, "Retry-After", "3540")
}

func TestTimesAreRoundedUp(t *testing.T) {
	clock := newClock()
	h := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.Every(1, 2500*time.Millisecond)), httplimit.PeerAddress, nil)(ok)
	res := get(h, "GET", "/", nil)
	wantField(t, res, "RateLimit-Policy", `"1/2.5s";q=1;w=3`)
	wantField(t, res, "RateLimit", `"1/2.5s";r=0;t=3`)
	clock.Advance(499999 * time.Microsecond) // 2.000001 s left
	wantField(t, get(h, "GET", "/", nil), "Retry-After", "3")
	clock.Advance(time.Microsecond)
	wantField(t, get(h, "GET", "/", nil), "Retry-After", "2")
	clock.Advance(2*time.Second - time.Microsecond)
	wantField(t, get(h, "GET", "/", nil), "Retry-After", "1")
	clock.Advance(time.Microsecond)
	wantStatus(t, get(h, "GET", "/", nil), 200)
}

func TestCalendarFields(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		at     time.Time
		limit  sash.Limit
		policy string
		state  string
	}{
		{"an hour", start, sash.PerCalendar(9, sash.CalendarHour, nil), `"9/hour@UTC";q=9;w=3600`, `"9/hour@UTC";r=8;t=3000`},
		{"a day", start, sash.PerCalendar(9, sash.CalendarDay, nil), `"9/day@UTC";q=9;w=86400`, `"9/day@UTC";r=8;t=42600`},
		{"a day of 23 hours", time.Date(2026, 3, 29, 12, 0, 0, 0, berlin), sash.PerCalendar(9, sash.CalendarDay, berlin),
			`"9/day@Europe/Berlin";q=9;w=82800`, `"9/day@Europe/Berlin";r=8;t=43200`},
		{"February", time.Date(2026, 2, 28, 23, 0, 0, 0, time.UTC), sash.PerCalendar(9, sash.CalendarMonth, nil),
			`"9/month@UTC";q=9;w=2419200`, `"9/month@UTC";r=8;t=3600`},
		{"March", start, sash.PerCalendar(9, sash.CalendarMonth, nil), `"9/month@UTC";q=9;w=2678400`, `"9/month@UTC";r=8;t=2634600`},
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

func TestPartitionKeyIsADigest(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, clock.store(), nil, sash.PerMinute(5))
	pk := func(hmacKey, addr string) string {
		h := newMiddleware(t, limiter, httplimit.PeerAddress, &httplimit.Options{PartitionKey: []byte(hmacKey)})(ok)
		res := get(h, "GET", "/", func(r *http.Request) { r.RemoteAddr = addr })
		wantStatus(t, res, 200)
		var found []string
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			list, err := httpsfv.UnmarshalList(res.header.Values(name))
			if err != nil {
				t.Fatal(err)
			}
			v, _ := list[0].(httpsfv.Item).Params.Get("pk")
			found = append(found, hex.EncodeToString(v.([]byte)))
		}
		if found[0] != found[1] || len(found[0]) != 32 {
			t.Errorf("pk of RateLimit %s, of RateLimit-Policy %s", found[0], found[1])
		}
		return found[0]
	}
	first := pk("a", "203.0.113.9:1")
	if pk("a", "203.0.113.9:2") != first {
		t.Error("the same subject has another pk")
	}
	if pk("a", "203.0.113.10:1") == first || pk("b", "203.0.113.9:1") == first {
		t.Error("another subject, or another HMAC key, has the same pk")
	}
}

func TestFieldsOfNestedMiddlewares(t *testing.T) {
	clock := newClock()
	outer := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.PerHour(5)), httplimit.Shared("all"), nil)
	inner := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.PerMinute(1)), httplimit.PeerAddress, nil)
	h := outer(inner(ok))
	res := get(h, "GET", "/", nil)
	list, err := httpsfv.UnmarshalList(res.header.Values("RateLimit"))
	if err != nil || len(list) != 2 {
		t.Errorf("%q: %v; want the limits of both", res.header.Values("RateLimit"), err)
	}
	res = get(h, "GET", "/", nil)
	wantStatus(t, res, 429)
	if got := res.header.Values("RateLimit"); len(got) != 1 || got[0] != `"1/1m";r=0;t=60` {
		t.Errorf("%q; the outer limit's time would be beyond Retry-After", got)
	}
}

// Random limits, names and traffic: the lists are valid RFC 9651, name every limit once with its units left, and
// no time is beyond Retry-After.
func TestFieldsParseBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		clock := newClock()
		names := []string{"", "burst", `quo"te\`, "täglich", "tab\tnew\nline"}
		limits := []sash.Limit{
			{Units: 1 + rng.Int64N(20), Window: time.Duration(1+rng.Int64N(20_000)) * time.Millisecond, Name: names[rng.IntN(len(names))]},
			{Units: 1 + rng.Int64N(200), Window: time.Duration(21+rng.Int64N(1000)) * time.Second},
			sash.PerCalendar(1+rng.Int64N(300), sash.CalendarDay, nil),
		}
		limiter := newLimiter(t, clock.store(), nil, limits...)
		cost := int64(1)
		h := newMiddleware(t, limiter, httplimit.PeerAddress, &httplimit.Options{
			Cost: func(*http.Request) int64 { return cost },
		})(ok)
		for range 20 {
			cost = 1 + rng.Int64N(min(limits[0].Units, limits[1].Units, limits[2].Units))
			clock.Advance(time.Duration(rng.Int64N(5_000_000)) * time.Microsecond)
			res := get(h, "GET", "/", nil)
			left, err := limiter.Peek(t.Context(), "addr:203.0.113.9")
			if err != nil {
				t.Fatal(err)
			}
			state, err := httpsfv.UnmarshalList(res.header.Values("RateLimit"))
			if err != nil {
				t.Fatalf("%q: %v", res.header.Values("RateLimit"), err)
			}
			policy, err := httpsfv.UnmarshalList(res.header.Values("RateLimit-Policy"))
			if err != nil {
				t.Fatalf("%q: %v", res.header.Values("RateLimit-Policy"), err)
			}
			if len(state) != len(limits) || len(policy) != len(limits) {
				t.Fatalf("%d and %d items for %d limits", len(state), len(policy), len(limits))
			}
			for i, l := range left.Limits() {
				s, p := state[i].(httpsfv.Item), policy[i].(httpsfv.Item)
				if s.Value != p.Value {
					t.Errorf("RateLimit names %v where RateLimit-Policy names %v", s.Value, p.Value)
				}
				param := func(item httpsfv.Item, name string) int64 {
					v, _ := item.Params.Get(name)
					n, is := v.(int64)
					if !is {
						t.Fatalf("%s of %v is %v", name, item.Value, v)
					}
					return n
				}
				if param(p, "q") != l.Limit.Units || param(s, "r") != l.Remaining || param(p, "w") < 1 {
					t.Errorf("q=%d r=%d w=%d for %+v", param(p, "q"), param(s, "r"), param(p, "w"), l)
				}
				if param(s, "t") < 0 || param(s, "r") == 0 && param(s, "t") == 0 {
					t.Errorf("t=%d with r=%d", param(s, "t"), param(s, "r"))
				}
				if res.status != 429 {
					continue
				}
				retry, err := strconv.ParseInt(res.header.Get("Retry-After"), 10, 64)
				if err != nil || retry < 1 || param(s, "t") > retry {
					t.Errorf("t=%d is beyond Retry-After %q", param(s, "t"), res.header.Get("Retry-After"))
				}
			}
		}
	}
}
