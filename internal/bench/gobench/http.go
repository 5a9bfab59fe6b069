package gobench

import (
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/didip/tollbooth/v7"
	tollboothlimiter "github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/internal/bench/report"
	"example.com/sash/memstore"
)

//go:embed http.md
var httpPage string

// A middleware is a contender in front of a handler. Each counts by the address of the peer, in this process, admits the
// request and reports in fields what is left.
type middleware struct {
	name string
	wrap func(http.Handler) http.Handler
}

// httpUnits in an hour are more than a run requests.
const httpUnits = 30_000

func middlewares() []middleware {
	ours := func(dialect httplimit.Dialect, limits ...sash.Limit) func(http.Handler) http.Handler {
		return must(httplimit.New(must(sash.New(memstore.New(nil), nil, limits...)), httplimit.PeerAddress, &httplimit.Options{Dialect: dialect}))
	}
	hourly, daily := sash.PerHour(httpUnits), sash.PerDay(2*httpUnits)
	return []middleware{
		{"httplimit, two limits, fields of draft 11", ours(httplimit.Draft11, hourly, daily)},
		{"httplimit, one limit, fields of draft 11", ours(httplimit.Draft11, hourly)},
		{"httplimit, one limit, X-RateLimit fields", ours(httplimit.LegacyUnix, hourly)},
		{"httplimit, one limit, no fields", ours(httplimit.NoFields, hourly)},
		{"httprate, one limit, X-RateLimit fields", httprate.LimitBy(httpUnits, time.Hour, peerAddress)},
		{"tollbooth, one limit, RateLimit fields", openTollbooth},
	}
}

// peerAddress does what httprate.KeyByIP did, which is deprecated.
func peerAddress(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

func openTollbooth(next http.Handler) http.Handler {
	lmt := tollbooth.NewLimiter(httpUnits, &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: time.Hour})
	lmt.SetIPLookups([]string{"RemoteAddr"})
	return tollbooth.LimitHandler(lmt, next)
}

// A sink is a ResponseWriter that serves one request after another and keeps only the fields and the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// serving returns a function that serves a request through a middleware, and the writer of its last response.
func (m middleware) serving() (serve func(), last *sink) {
	h := m.wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	r := must(http.NewRequest(http.MethodGet, "/", nil))
	r.RemoteAddr = "203.0.113.9:4711"
	last = &sink{header: http.Header{}}
	return func() {
		clear(last.header)
		h.ServeHTTP(last, r)
	}, last
}

// HTTP counts the allocations that a middleware adds to a request, and adds them to the report.
func HTTP(r *report.Report) error {
	table := report.NewTable("middleware", "allocations a request")
	for i, m := range middlewares() {
		r.Say("in this process: %s", m.name)
		serve, _ := m.serving()
		allocs := testing.AllocsPerRun(1000, serve)
		table.Row(m.name, fmt.Sprintf("%.0f", allocs))
		if i == 0 {
			r.AtMost(20, allocs, "httplimit, allocations a request, two limits with fields")
		}
	}
	return r.Add(httpPage, map[string]any{"Table": table})
}
