package routers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

// login returns a middleware with 2 wrong passwords a minute, and one request at once.
func login(t *testing.T) httplimit.Middleware {
	t.Helper()
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(2))
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{
		{Name: "wrong", Key: httplimit.PeerAddress, Charge: httplimit.Failures},
		{Name: "at once", Key: httplimit.PeerAddress, Charge: httplimit.InFlight, Limits: []sash.Limit{sash.Every(1, time.Hour)}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func get(ctx context.Context, h http.Handler, path string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return w.Code
}

// Each router answers /right with 200 and /wrong with 401 in its own way, and does not answer /left, whose client has hung
// up. All of them ask it for /right within.
func TestFailuresAndRequestsInFlightAreCountedUnder(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, build := range map[string]func(t *testing.T, within func()) http.Handler{
		"chi": func(t *testing.T, within func()) http.Handler {
			router := chi.NewRouter()
			router.Use(login(t))
			router.Get("/{password}", func(w http.ResponseWriter, r *http.Request) {
				within()
				if chi.URLParam(r, "password") == "wrong" {
					http.Error(w, "wrong", http.StatusUnauthorized)
				}
			})
			return router
		},
		"gin": func(t *testing.T, within func()) http.Handler {
			router := gin.New()
			router.Use(underGin(login(t)))
			router.GET("/:password", func(c *gin.Context) {
				within()
				if c.Param("password") == "wrong" {
					c.AbortWithStatus(http.StatusUnauthorized)
				}
			})
			return router
		},
		"echo": func(t *testing.T, within func()) http.Handler {
			e := echo.New()
			e.Use(underEcho(e, login(t)))
			e.GET("/:password", func(c *echo.Context) error {
				within()
				switch c.Param("password") {
				case "wrong":
					return echo.ErrUnauthorized
				case "left":
					return nil
				}
				return c.NoContent(http.StatusOK)
			})
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			var router http.Handler
			var hangUp func()
			inside := false
			router = build(t, func() {
				if inside {
					t.Error("two requests at once")
				}
				inside = true
				defer func() { inside = false }()
				hangUp()
				if status := get(t.Context(), router, "/right"); status != http.StatusTooManyRequests {
					t.Errorf("a second request at once: %d", status)
				}
			})
			for i, c := range []struct {
				path   string
				status int
			}{{"/right", 200}, {"/wrong", 401}, {"/right", 200}, {"/right", 200}, {"/left", 0}, {"/right", 429}} {
				ctx, end := context.WithCancel(t.Context())
				if hangUp = func() {}; c.path == "/left" {
					hangUp = end
				}
				if status := get(ctx, router, c.path); status != c.status && c.status != 0 {
					t.Errorf("request %d for %s: %d, want %d", i, c.path, status, c.status)
				}
				end()
			}
		})
	}
}
