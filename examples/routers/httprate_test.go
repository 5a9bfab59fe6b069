package routers

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// The code of docs/migrating/httprate.md.
func Example_migratingFromHttprate() {
	r := chi.NewRouter()
	limiter, err := sash.New(memstore.New(nil), &sash.Options{Prefix: "api"}, sash.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.Join(httplimit.PeerAddress, httplimit.Path(httplimit.CleanOnly)),
		&httplimit.Options{Dialect: httplimit.LegacyUnix})
	if err != nil {
		log.Fatal(err)
	}
	r.Use(limit)
	r.Get("/hello", hello)

	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hello", nil))
	fmt.Println(w.Code, w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"))
	// Output: 200 100 99
}
