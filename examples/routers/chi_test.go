package routers

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
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
