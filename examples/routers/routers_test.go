package routers

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

// withPattern has requests that no route matches count together: a limit by Pattern is an error without one.
func withPattern(limit httplimit.Middleware) httplimit.Middleware {
	return func(next http.Handler) http.Handler {
		limited := limit(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Pattern = cmp.Or(r.Pattern, "none")
			limited.ServeHTTP(w, r)
		})
	}
}

// underGin makes a middleware of net/http one of Gin, with the route as the request's pattern. Handlers that run after it
// write to Gin's own writer, so it passes their status on, for layers that charge failures.
func underGin(limit httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		admitted := false
		c.Request.Pattern = c.FullPath()
		withPattern(limit)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			admitted = true
			c.Request = r
			c.Next()
			if status := c.Writer.Status(); c.Writer.Written() || status != http.StatusOK { // else none was sent
				w.WriteHeader(status)
			}
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

// underEcho is echo.WrapMiddleware for limits. Echo answers an error of a handler after all middleware has returned; this
// has it answered before the limit returns, so that a layer that charges failures sees the status.
func underEcho(e *echo.Echo, limit httplimit.Middleware) echo.MiddlewareFunc {
	wrap := echo.WrapMiddleware(withPattern(limit))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return wrap(func(c *echo.Context) error {
			if err := next(c); err != nil {
				e.HTTPErrorHandler(c, err)
			}
			return nil
		})
	}
}

// underFiber makes a middleware of net/http one of Fiber, with the route as the request's pattern.
//
// Fiber is not net/http. Its adaptor copies each request into one of net/http, calls the middleware, and runs the handler
// when the middleware has returned. So
//
//   - it counts requests only. Layers of Failures and InFlight would be settled before the handler runs: use Reserve of a
//     limiter, or a Concurrency, in the handler;
//   - a client that leaves while the store decides is charged, and the handler runs, because Fiber does not notice;
//   - of a header field that a request has several times, the handler sees the last value only.
func underFiber(limit httplimit.Middleware) fiber.Handler {
	type routeKey struct{}
	wrapped := adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
		limited := limit(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			route, _ := r.Context().Value(routeKey{}).(string)    // the context is Fiber's, with its Locals
			r = r.WithContext(context.WithoutCancel(r.Context())) // Fiber uses it again for another request
			r.Pattern = route
			limited.ServeHTTP(w, r)
		})
	})
	return func(c fiber.Ctx) error {
		c.Locals(routeKey{}, c.Route().Path)
		return wrapped(c)
	}
}

// Each router has two routes behind a limit, which call a function and answer /wrong with 401 in the router's own way. They
// answer nothing where the function reports that the client has hung up.
var routers = map[string]func(limit httplimit.Middleware, gone func() bool) http.Handler{
	// The middleware stands behind the router, with With or in a Group, because chi knows the pattern only there. A limit
	// whose key has no pattern may stand in front: router.Use(limit).
	"chi": func(limit httplimit.Middleware, gone func() bool) http.Handler {
		router := chi.NewRouter()
		handler := func(w http.ResponseWriter, r *http.Request) {
			if !gone() && chi.URLParam(r, "id") == "wrong" {
				http.Error(w, "wrong", http.StatusUnauthorized)
			}
		}
		router.With(limit).Get("/items/{id}", handler)
		router.With(limit).Get("/users/{id}", handler)
		return router
	},
	// Gin knows the route before its middleware runs, so Use will do.
	"gin": func(limit httplimit.Middleware, gone func() bool) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.Use(underGin(limit))
		handler := func(c *gin.Context) {
			if !gone() && c.Param("id") == "wrong" {
				c.AbortWithStatus(http.StatusUnauthorized)
			}
		}
		router.GET("/items/:id", handler)
		router.GET("/users/:id", handler)
		return router
	},
	// Echo knows the route where Use runs, but not yet where Pre does.
	"echo": func(limit httplimit.Middleware, gone func() bool) http.Handler {
		e := echo.New()
		e.Use(underEcho(e, limit))
		handler := func(c *echo.Context) error {
			switch {
			case gone():
				return nil
			case c.Param("id") == "wrong":
				return echo.ErrUnauthorized
			}
			return c.NoContent(http.StatusOK)
		}
		e.GET("/items/:id", handler)
		e.GET("/users/:id", handler)
		return e
	},
	// The middleware stands with the route: in Use it would see the path of Use as the route.
	"fiber": func(limit httplimit.Middleware, _ func() bool) http.Handler {
		app, limited := fiber.New(), underFiber(limit)
		handler := func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) }
		app.Get("/items/:id", limited, handler)
		app.Get("/users/:id", limited, handler)
		return adaptor.FiberApp(app)
	},
}

// newLimiter returns a limiter in memory of 2 requests a minute, whose clock stands still. A program has memstore.New(nil),
// or a store on Redis.
func newLimiter() *sash.Limiter {
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return noon }})
	limiter, err := sash.New(store, &sash.Options{Prefix: "api"}, sash.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

func get(ctx context.Context, h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return w
}

// An address has its limit on each route, whatever the path is.
func TestRequestsAreCountedByRouteUnder(t *testing.T) {
	for name, build := range routers {
		t.Run(name, func(t *testing.T) {
			limit, err := httplimit.New(newLimiter(), httplimit.Join(httplimit.PeerAddress, httplimit.Pattern), nil)
			if err != nil {
				t.Fatal(err)
			}
			router := build(limit, func() bool { return false })
			for _, c := range []struct {
				path          string
				status        int
				fields, after string
			}{
				{"/items/1", 200, `"2/1m";r=1;t=60`, ""}, {"/items/2", 200, `"2/1m";r=0;t=60`, ""},
				{"/items/3", 429, `"2/1m";r=0;t=60`, "60"}, {"/users/1", 200, `"2/1m";r=1;t=60`, ""},
			} {
				w := get(t.Context(), router, c.path)
				if w.Code != c.status || w.Header().Get("RateLimit") != c.fields || w.Header().Get("Retry-After") != c.after {
					t.Errorf("%s: %d with %v", c.path, w.Code, w.Header())
				}
			}
		})
	}
}

// A login has 2 wrong passwords a minute, and one request at once. Each request makes another one before it is answered.
func TestFailuresAndRequestsInFlightAreCountedUnder(t *testing.T) {
	for name, build := range routers {
		if name == "fiber" {
			continue // see underFiber
		}
		t.Run(name, func(t *testing.T) {
			login, err := httplimit.NewLayers(newLimiter(), []httplimit.Layer{
				{Name: "wrong", Key: httplimit.PeerAddress, Charge: httplimit.Failures},
				{Name: "at once", Key: httplimit.PeerAddress, Charge: httplimit.InFlight, Limits: []sash.Limit{sash.Every(1, time.Hour)}},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var router http.Handler
			var hangUp func()
			inside := false
			router = build(login, func() (gone bool) {
				if inside {
					t.Error("two requests at once")
				}
				inside = true
				defer func() { inside = false }()
				if hangUp != nil {
					hangUp()
				}
				if status := get(t.Context(), router, "/items/right").Code; status != http.StatusTooManyRequests {
					t.Errorf("a second request at once: %d", status)
				}
				return hangUp != nil
			})
			for i, c := range []struct {
				path   string
				status int
			}{{"right", 200}, {"wrong", 401}, {"right", 200}, {"right", 200}, {"left", 0}, {"right", 429}} {
				ctx, end := context.WithCancel(t.Context())
				if hangUp = nil; c.path == "left" {
					hangUp = end
				}
				if status := get(ctx, router, "/items/"+c.path).Code; status != c.status && c.status != 0 {
					t.Errorf("request %d for %s: %d, want %d", i, c.path, status, c.status)
				}
				end()
			}
		})
	}
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
