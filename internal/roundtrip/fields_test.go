package roundtrip

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/httplimit"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// list parses a List of RFC 9651, which has to be what a library writes for the same values.
func list(t *testing.T, h http.Header, field string) (items []httpsfv.Item) {
	t.Helper()
	lines := h.Values(field)
	parsed, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%s: %q: %v", field, lines, err)
	}
	if text, err := httpsfv.Marshal(parsed); err != nil || text != strings.Join(lines, ", ") {
		t.Fatalf("%s: %q, and the library writes %q, %v", field, lines, text, err)
	}
	for _, member := range parsed {
		items = append(items, member.(httpsfv.Item))
	}
	return items
}

// number returns an Integer among the parameters of an item; -1 if it has none of that name.
func number(item httpsfv.Item, name string) int64 {
	if v, ok := item.Params.Get(name); ok {
		return v.(int64)
	}
	return -1
}

// Random limits, layers, names and traffic: the fields are those of a library, name every limit once with its units left,
// and no time is beyond Retry-After.
func TestFieldsParseBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	names := []string{"", "burst", `quo"te\`, "täglich", "tab\tnew\nline", "a:b, c;d=e"}
	for range 300 {
		clock := judge.NewClock(time.Date(2026, time.March, 1, 12, 10, 0, 250_000_000, time.UTC))
		limits := []sash.Limit{
			{Units: 1 + rng.Int64N(20), Window: time.Duration(1+rng.Int64N(20_000)) * time.Millisecond, Name: names[rng.IntN(len(names))]},
			{Units: 1 + rng.Int64N(200), Window: time.Duration(21+rng.Int64N(1000)) * time.Second},
			sash.PerCalendar(1+rng.Int64N(300), sash.CalendarDay, nil),
		}
		cost := int64(1)
		opts := httplimit.Options{Cost: func(*http.Request) int64 { return cost }}
		layers := []httplimit.Layer{{Name: names[rng.IntN(len(names))], Key: httplimit.Shared("client")}}
		store := memstore.New(&memstore.Options{Now: clock.Now})
		a := newAPI(t, store, arrangement{limits: limits, layers: layers, opts: opts})
		for range 20 {
			cost = 1 + rng.Int64N(min(limits[0].Units, limits[1].Units, limits[2].Units))
			clock.Advance(time.Duration(rng.Int64N(5_000_000)) * time.Microsecond)
			rec := httptest.NewRecorder()
			a.handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
			h := rec.Header()
			state, policy := list(t, h, "RateLimit"), list(t, h, "RateLimit-Policy")
			if len(state) != len(limits) || len(policy) != len(limits) {
				t.Fatalf("%d and %d items for %d limits", len(state), len(policy), len(limits))
			}
			retry, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
			if refused := rec.Code == http.StatusTooManyRequests; refused != (retry > 0) {
				t.Errorf("%d with Retry-After %q", rec.Code, h.Get("Retry-After"))
			}
			for i, left := range remaining(t, store, layers[0], limits) {
				s, p := state[i], policy[i]
				if s.Value != p.Value || number(p, "q") != limits[i].Units || number(s, "r") != left || number(p, "w") < 1 {
					t.Errorf("the limit %v has %d left: %q, %q", limits[i], left, h.Values("RateLimit"), h.Values("RateLimit-Policy"))
				}
				if until := number(s, "t"); until < 0 || until == 0 && left == 0 || retry > 0 && until > retry {
					t.Errorf("t=%d with r=%d and Retry-After %d", until, left, retry)
				}
			}
		}
	}
}

// remaining returns what is left of each limit, from the store.
func remaining(t *testing.T, store *memstore.Store, layer httplimit.Layer, limits []sash.Limit) (left []int64) {
	t.Helper()
	limiter := must(sash.New(store, nil, limits...))(t)
	key := sash.Key("shared", "client")
	if layer.Name != "" {
		key = sash.Key(layer.Name) + ":" + key
	}
	res := must(limiter.Peek(t.Context(), key))(t)
	for _, l := range res.Limits() {
		left = append(left, l.Remaining)
	}
	return left
}

// Whatever a store reports, the fields are those that a library writes for the same values.
func FuzzFieldsAreThoseOfTheLibrary(f *testing.F) {
	f.Add("100/1h", int64(100), int64(99), int64(time.Hour), int64(time.Minute), false)
	f.Add(`quo"te\`, int64(1), int64(0), int64(1), int64(0), true)
	f.Add("täglich\x00\x7f", int64(0), int64(0), int64(1)<<62, int64(1)<<62, false)
	f.Fuzz(func(t *testing.T, name string, units, left, window, release int64, refused bool) {
		const most = 1e15 // numbers of RFC 9651 are below it, and so are units
		if units < 0 || left < 0 || window < 0 {
			return
		}
		l := sash.LimitResult{
			Limit: sash.Limit{Name: name, Units: units % most, Window: time.Duration(window)}, Remaining: left % most,
			ReleaseAfter: time.Duration(release), RetryAfter: time.Duration(release), Refused: refused,
		}
		limits := []sash.LimitResult{l, {Limit: sash.PerSecond(1)}, l}
		at := time.Unix(1_777_896_000, 0)
		for _, d := range []httplimit.Dialect{httplimit.Draft11, httplimit.Draft07, httplimit.Draft06} {
			h := http.Header{}
			d.Set(h, limits, at)
			policy := list(t, h, "RateLimit-Policy")
			if len(policy) != 3 || number(policy[0], "w") < 0 {
				t.Errorf("%v: %q", d, h)
			}
			switch d {
			case httplimit.Draft11:
				state := list(t, h, "RateLimit")
				same := func(a, b httpsfv.Item) bool { return a.Value == b.Value }
				if !slices.EqualFunc(state, policy, same) || number(policy[0], "q") != units%most ||
					number(state[0], "r") != min(left%most, units%most) {
					t.Errorf("%v of %+v: %q", d, l, h)
				}
			case httplimit.Draft07:
				fields, err := httpsfv.UnmarshalDictionary(h.Values("RateLimit"))
				if err != nil {
					t.Fatalf("%v: %q: %v", d, h, err)
				}
				if text, err := httpsfv.Marshal(fields); err != nil || text != h.Get("RateLimit") {
					t.Errorf("%v: %q, and the library writes %q, %v", d, h, text, err)
				}
			}
		}
	})
}

var errDown = errors.New("connection reset by peer")

// guard returns a failover store over a store, as one of two instances.
func guard(t *testing.T, inner driver.Store, mode failover.Mode) *failover.Store {
	t.Helper()
	store := must(failover.New(inner, &failover.Options{
		Modes:     failover.Modes{Rules: []failover.Rule{{Mode: mode}}},
		Local:     memstore.New(nil),
		Instances: func() int { return 2 },
	}))(t)
	t.Cleanup(func() { // ends the goroutine that writes the backlog
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = store.Close(over)
	})
	return store
}

// Behind a store that is open, a response does not report limits that nothing counts, and a login admits no guesses.
func TestAnOpenStoreReportsNoLimitsAndOpensNoLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := storetest.NewFaulty(newStore())
		inner.Fail(errDown)
		limiter := must(sash.New(guard(t, inner, failover.Open), nil, sash.PerMinute(5)))(t)
		for charge, want := range map[httplimit.Charge]int{
			httplimit.Requests: http.StatusOK,
			httplimit.Failures: http.StatusServiceUnavailable,
		} {
			limit := must(httplimit.NewLayers(limiter, []httplimit.Layer{{Key: httplimit.PeerAddress, Charge: charge}}, nil))(t)
			reached := false
			handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			if w.Code != want || reached != (want == http.StatusOK) || w.Header().Get("RateLimit") != "" {
				t.Errorf("%v: %d, %v, the handler ran: %v", charge, w.Code, w.Header(), reached)
			}
		}
	})
}
