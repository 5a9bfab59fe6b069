package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// The code of docs/migrating/tollbooth.md.
func Example_migratingFromTollbooth() {
	mux := http.NewServeMux()
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerSecond(10))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{{Key: httplimit.PeerAddress, Match: httplimit.Writes}},
		&httplimit.Options{Dialect: httplimit.Draft06})
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("/hello", limit(http.HandlerFunc(hello)))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/hello", nil))
	fmt.Println(w.Code, w.Header().Get("RateLimit-Limit"), w.Header().Get("RateLimit-Remaining"))
	// Output: 200 10 9
}

// The code of docs/migrating/throttled.md.
func Example_migratingFromThrottled() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(25))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.Path(httplimit.CleanOnly), &httplimit.Options{Dialect: httplimit.Draft06})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit(http.HandlerFunc(hello))

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hello", nil))
	fmt.Println(w.Code, w.Header().Get("RateLimit-Remaining"))
	// Output: 200 24
}

// The code of docs/migrating/ulule-limiter.md.
func Example_migratingFromUlule() {
	rate, err := sash.ParseLimit("1000/1h")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sash.New(memstore.New(nil), nil, rate)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.PeerAddress, &httplimit.Options{Dialect: httplimit.LegacyUnix})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit(http.HandlerFunc(hello))

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hello", nil))
	fmt.Println(w.Code, w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"))
	// Output: 200 1000 999
}
