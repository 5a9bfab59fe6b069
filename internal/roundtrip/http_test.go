package roundtrip

import (
	"net/http"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/outgoing"
	"example.com/sash/storetest"
)

var dialects = []httplimit.Dialect{
	httplimit.Draft11, httplimit.Draft07, httplimit.Draft06, httplimit.LegacyUnix, httplimit.LegacyRFC3339, httplimit.NoFields,
}

// A server is an arrangement whose rate over the long run and smallest limit are known.
type server struct {
	name      string
	perMinute int
	smallest  int
	arranged  arrangement
}

var servers = []server{
	{"one limit", 60, 60, arrangement{limits: []sash.Limit{sash.PerMinute(60)}}},
	{"burst and sustained", 40, 5, arrangement{limits: []sash.Limit{sash.Every(5, 5*time.Second), sash.PerMinute(40)}}},
	{"layers", 40, 20, arrangement{limits: []sash.Limit{sash.PerMinute(60)}, layers: []httplimit.Layer{
		{Name: "customer", Key: httplimit.Shared("c"), Limits: []sash.Limit{sash.PerMinute(40)}},
		{Name: "all", Key: httplimit.Shared("all"), Limits: []sash.Limit{sash.Every(20, 10*time.Second)}},
	}}},
}

// believed are a client's limits: the windows of the servers, with many more units than they have.
var believed = []sash.Limit{sash.Every(50, 5*time.Second), sash.Every(200, 10*time.Second), sash.PerMinute(600)}

const lasts = 10 * time.Minute

// drive lets clients send what they can for ten minutes, and returns the API.
func drive(t *testing.T, d httplimit.Dialect, s server, transports, workers int, limits ...sash.Limit) *api {
	t.Helper()
	// Clients distinguish Unix seconds from seconds by their size, so the clock has to be in this century. It
	// is between two seconds, as real clocks are.
	time.Sleep(25*365*24*time.Hour + 370*time.Millisecond)
	s.arranged.opts.Dialect = d
	a := newAPI(t, newStore(), s.arranged)
	store := newStore()
	var fleet []*outgoing.Transport
	for range transports {
		fleet = append(fleet, newClient(t, store, a, limits...))
	}
	stream(t, fleet, workers, lasts)
	return a
}

// served checks that the clients got at least a percentage of what the server admits in that time.
func served(t *testing.T, a *api, s server, percent int) {
	t.Helper()
	admits := s.perMinute * int(lasts/time.Minute)
	if n := a.answered(http.StatusOK); n*100 < admits*percent {
		t.Errorf("%d requests were served, of %d that fit; want %d %%", n, admits, percent)
	}
}

func eachServer(t *testing.T, f func(t *testing.T, d httplimit.Dialect, s server)) {
	for _, d := range dialects {
		for _, s := range servers {
			bubble(t, d.String()+"/"+s.name, func(t *testing.T) { f(t, d, s) })
		}
	}
}

// A client that sends one request after the other is never refused twice in a row: after a refusal the next
// request is admitted. How often it is refused depends on the fields:
//   - Draft11 reports every limit: never.
//   - The other drafts and X-RateLimit report one limit: never where there is one. Where there are several, the
//     client runs into one that is not reported, with less than one request of ten.
//   - Retry-After alone reports nothing beforehand: once for each window that the client fills.
//
// In every case it gets 95 % of what the server admits.
func TestAClientIsNeverRefusedTwice(t *testing.T) {
	eachServer(t, func(t *testing.T, d httplimit.Dialect, s server) {
		a := drive(t, d, s, 1, 1, believed...)
		most := a.answered(http.StatusOK) / 10
		switch {
		case d == httplimit.NoFields:
			most = a.answered(http.StatusOK) / s.smallest
		case d == httplimit.Draft11, s.name == "one limit":
			most = 0
		}
		refused := a.answered(http.StatusTooManyRequests)
		if again := a.repeated(); refused > most || again > 0 {
			t.Errorf("%d refusals, want at most %d; %d came right after another", refused, most, again)
		}
		served(t, a, s, 95)
		t.Logf("%d served, %d refused", a.answered(http.StatusOK), refused)
	})
}

// Draft11 reports its windows, so a client that is configured for other windows is not refused either.
func TestAClientWithOtherWindowsIsNotRefused(t *testing.T) {
	for _, s := range servers {
		bubble(t, s.name, func(t *testing.T) {
			a := drive(t, httplimit.Draft11, s, 1, 1, sash.PerHour(36_000))
			if refused := a.answered(http.StatusTooManyRequests); refused > 0 {
				t.Errorf("%d refusals", refused)
			}
			served(t, a, s, 95)
		})
	}
}

// Requests in flight together can be refused together. But once one of them has a retry time, none is sent before it, also by
// another process, which finds the cool-down in the store. Draft11 keeps refusals below one request of ten, and mostly at
// none. The fields of the other dialects may have no windows: then a client takes the units left for those of its own window,
// here an hour; it is refused at times, but not held back for that hour.
func TestNoRequestIsSentBeforeARetryTime(t *testing.T) {
	for name, c := range map[string]struct {
		transports, workers int
		limits              []sash.Limit
		percent             int
		draft11             int // percent of refusals
	}{
		"workers":       {1, 4, believed, 75, 10},
		"processes":     {3, 2, believed, 75, 100},
		"other windows": {1, 4, []sash.Limit{sash.PerHour(36_000)}, 90, 100},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, d httplimit.Dialect, s server) {
				a := drive(t, d, s, c.transports, c.workers, c.limits...)
				if early := a.early(); early > 0 {
					t.Errorf("a request was sent %v before it should", early)
				}
				ok, refused := a.answered(http.StatusOK), a.answered(http.StatusTooManyRequests)
				if d == httplimit.Draft11 && refused*100 > ok*c.draft11 {
					t.Errorf("%d refusals, although every response reports every limit", refused)
				}
				served(t, a, s, c.percent)
				t.Logf("%d served, %d refused", ok, refused)
			})
		})
	}
}

// A server whose store fails answers 503. The client returns that to its caller, waits for the Retry-After, and
// afterwards keeps to the limits that it knew before.
func TestAFailedStoreIsNotALimit(t *testing.T) {
	for _, d := range dialects {
		bubble(t, d.String(), func(t *testing.T) {
			store := storetest.NewFaulty(newStore())
			a := newAPI(t, store, arrangement{limits: []sash.Limit{sash.PerMinute(60)}, opts: httplimit.Options{Dialect: d}})
			rt := newClient(t, newStore(), a, sash.PerMinute(60))
			if status, err := send(t.Context(), rt); status != http.StatusOK {
				t.Fatal(status, err)
			}
			store.Fail(errDown)
			if status, err := send(t.Context(), rt); status != http.StatusServiceUnavailable || err != nil {
				t.Fatalf("%d, %v; want the server's 503", status, err)
			}
			store.Fail(nil)
			start := time.Now()
			if status, err := send(t.Context(), rt); status != http.StatusOK {
				t.Fatal(status, err)
			}
			// The server says 5 s to 10 s, rounded up to a second, and the client adds up to a tenth.
			if waited := time.Since(start); waited < 5*time.Second-2*latency || waited > 12*time.Second {
				t.Errorf("the next request took %v, want 5 s to 11 s and a little", waited)
			}
			start = time.Now()
			for range 57 { // what is left of the 60: the client has charged 3, the server 2
				if status, err := send(t.Context(), rt); status != http.StatusOK {
					t.Fatal(status, err)
				}
			}
			if took := time.Since(start); took > 57*2*latency {
				t.Errorf("57 requests that had room took %v", took)
			}
		})
	}
}
