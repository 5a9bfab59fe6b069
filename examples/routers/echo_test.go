package routers

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"example.com/sash/httplimit"
)

// underEcho is echo.WrapMiddleware for limits. Echo answers an error of a handler after all middleware has returned; this
// has it answered before the limit returns, so that a layer that charges failures sees the status.
func underEcho(e *echo.Echo, limit httplimit.Middleware) echo.MiddlewareFunc {
	wrap := echo.WrapMiddleware(limit)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return wrap(func(c *echo.Context) error {
			if err := next(c); err != nil {
				e.HTTPErrorHandler(c, err)
			}
			return nil
		})
	}
}

// Echo knows the route where Use runs, but not yet where Pre does.
func Example_echo() {
	e := echo.New()
	e.Use(underEcho(e, perRoute()))
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")) })
	e.GET("/users/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "user "+c.Param("id")) })
	show(e, "/items/1", "/items/2", "/items/3", "/users/1")
	// Output:
	// /items/1 200 "2/1m";r=1;t=60
	// /items/2 200 "2/1m";r=0;t=60
	// /items/3 429 "2/1m";r=0;t=60
	//   Retry-After: 60
	// /users/1 200 "2/1m";r=1;t=60
}
