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

// The middleware stands behind the router, with With or in a Group, because chi knows the pattern only there. A limit
// whose key has no pattern may stand in front: router.Use(limit).
func Example_chi() {
	limit := perRoute()
	router := chi.NewRouter()
	router.With(limit).Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "item ", chi.URLParam(r, "id"))
	})
	router.With(limit).Get("/users/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "user ", chi.URLParam(r, "id"))
	})
	show(router, "/items/1", "/items/2", "/items/3", "/users/1")
	// Output:
	// /items/1 200 "2/1m";r=1;t=60
	// /items/2 200 "2/1m";r=0;t=60
	// /items/3 429 "2/1m";r=0;t=60
	//   Retry-After: 60
	// /users/1 200 "2/1m";r=1;t=60
}

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
