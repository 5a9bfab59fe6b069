package routers

import (
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"example.com/sash"
	"example.com/sash/httplimit"
)

// underFiber makes a middleware of net/http one of Fiber, with the route where fiberRoute finds it.
//
// Fiber is not net/http. Its adaptor copies each request into one of net/http, calls the middleware, and runs the handler
// when the middleware has returned. So
//
//   - it counts requests only. Layers of Failures and InFlight would be settled before the handler runs: use Reserve of a
//     limiter, or a Concurrency, in the handler;
//   - a client that leaves while the store decides is charged, and the handler runs, because Fiber does not notice;
//   - of a header field that a request has several times, the handler sees the last value only.
func underFiber(limit httplimit.Middleware) fiber.Handler {
	wrapped := adaptor.HTTPMiddleware(limit)
	return func(c fiber.Ctx) error {
		c.Locals(routeKey{}, c.Route().Path)
		return wrapped(c)
	}
}

type routeKey struct{}

// fiberRoute returns the route as the key. The request's context is Fiber's, with its Locals.
func fiberRoute(r *http.Request) (string, error) {
	route, _ := r.Context().Value(routeKey{}).(string)
	return sash.Key("route", route), nil
}

// The middleware stands with the route: in Use it would see the path of Use as the route.
func Example_fiber() {
	perRoute, err := httplimit.New(newLimiter(), httplimit.Join(httplimit.PeerAddress, fiberRoute), nil)
	if err != nil {
		log.Fatal(err)
	}
	limit := underFiber(perRoute)
	app := fiber.New()
	app.Get("/items/:id", limit, func(c fiber.Ctx) error { return c.SendString("item " + c.Params("id")) })
	app.Get("/users/:id", limit, func(c fiber.Ctx) error { return c.SendString("user " + c.Params("id")) })
	for _, path := range []string{"/items/1", "/items/2", "/items/3", "/users/1"} {
		res, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil))
		if err != nil {
			log.Fatal(err)
		}
		describe(path, res)
		_ = res.Body.Close()
	}
	// Output:
	// /items/1 200 "2/1m";r=1;t=60
	// /items/2 200 "2/1m";r=0;t=60
	// /items/3 429 "2/1m";r=0;t=60
	//   Retry-After: 60
	// /users/1 200 "2/1m";r=1;t=60
}
