package routers

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

// newLimiter returns a limiter in memory whose clock stands still, so that examples print the same every time. A program
// has memstore.New(nil), or a store on Redis.
func newLimiter() *sash.Limiter {
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return noon }})
	limiter, err := sash.New(store, &sash.Options{Prefix: "api"}, sash.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

// perRoute limits each address on each route.
func perRoute() httplimit.Middleware {
	limit, err := httplimit.New(newLimiter(), httplimit.Join(httplimit.PeerAddress, httplimit.Pattern), nil)
	if err != nil {
		log.Fatal(err)
	}
	return limit
}

// show sends a request for each path and prints what a client gets.
func show(h http.Handler, paths ...string) {
	for _, path := range paths {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		describe(path, w.Result())
	}
}

func describe(path string, res *http.Response) {
	fmt.Println(path, res.StatusCode, res.Header.Get("RateLimit"))
	if after := res.Header.Get("Retry-After"); after != "" {
		fmt.Println("  Retry-After:", after)
	}
}
