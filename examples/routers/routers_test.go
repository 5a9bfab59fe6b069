package routers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

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

// What the comment of underFiber says is lost.
func TestWhatIsLostUnderFiber(t *testing.T) {
	app := fiber.New()
	var seen []string
	app.Get("/wrong", adaptor.HTTPMiddleware(login(t)), func(c fiber.Ctx) error {
		for _, v := range c.Request().Header.PeekAll("X-Twice") {
			seen = append(seen, string(v))
		}
		return c.SendStatus(http.StatusUnauthorized)
	})
	for range 5 {
		r := httptest.NewRequest(http.MethodGet, "/wrong", nil)
		r.Header["X-Twice"] = []string{"one", "two"}
		res, err := app.Test(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized { // of which there are two a minute
			t.Errorf("failures are counted now (%d): say so", res.StatusCode)
		}
	}
	if len(seen) == 0 || slices.Contains(seen, "one") {
		t.Errorf("the handler saw %q", seen)
	}
}

// A client of each protocol reads a refusal as one, with the time to retry in its details; of a bare 429 it reads that
// the service is unavailable.
func TestClientsOfConnectReadARefusal(t *testing.T) {
	const procedure = "/demo.v1.EchoService/Say"
	for _, c := range []struct {
		opts *httplimit.Options
		code connect.Code
	}{
		{&httplimit.Options{Denied: inProtocol()}, connect.CodeResourceExhausted},
		{nil, connect.CodeUnavailable},
	} {
		limiter, err := sash.New(memstore.New(nil), nil, sash.Every(1, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		limit, err := httplimit.New(limiter, httplimit.PeerAddress, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle(procedure, limit(connect.NewUnaryHandler(procedure, say)))
		mux.Handle(procedure+"Stream", limit(connect.NewServerStreamHandler(procedure+"Stream",
			func(context.Context, *connect.Request[wrapperspb.StringValue], *connect.ServerStream[wrapperspb.StringValue]) error {
				return nil
			})))
		server := httptest.NewUnstartedServer(mux)
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		if _, err := limiter.Allow(t.Context(), sash.Key("addr", "127.0.0.1")); err != nil {
			t.Fatal(err)
		}
		for name, protocol := range map[string]connect.ClientOption{
			"connect": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
		} {
			client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+procedure, protocol)
			_, err := client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("hello")))
			wantRefusal(t, name, err, c.code)

			client = connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+procedure+"Stream", protocol)
			stream, err := client.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("hello")))
			if err == nil {
				stream.Receive()
				err = stream.Err()
				_ = stream.Close()
			}
			wantRefusal(t, name+", a stream", err, c.code)
		}
	}
}

func wantRefusal(t *testing.T, name string, err error, code connect.Code) {
	t.Helper()
	refusal := new(connect.Error)
	if !errors.As(err, &refusal) || refusal.Code() != code {
		t.Errorf("%s: %v, want %v", name, err, code)
		return
	}
	if code != connect.CodeResourceExhausted {
		return
	}
	for _, detail := range refusal.Details() {
		value, err := detail.Value()
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := value.(*errdetails.RetryInfo); ok && info.GetRetryDelay().AsDuration() > 59*time.Minute {
			return
		}
	}
	t.Errorf("%s: no RetryInfo in %v", name, refusal)
}
