package routers

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"example.com/sash/httplimit"
)

// underGin makes a middleware of net/http one of Gin, with the route as the request's pattern. Handlers that run after it
// write to Gin's own writer, so it passes their status on, for layers that charge failures.
func underGin(limit httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		admitted := false
		c.Request.Pattern = c.FullPath()
		limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// Gin knows the route before its middleware runs, so Use will do.
func Example_gin() {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(underGin(perRoute()))
	router.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, "item "+c.Param("id")) })
	router.GET("/users/:id", func(c *gin.Context) { c.String(http.StatusOK, "user "+c.Param("id")) })
	show(router, "/items/1", "/items/2", "/items/3", "/users/1")
	// Output:
	// /items/1 200 "2/1m";r=1;t=60
	// /items/2 200 "2/1m";r=0;t=60
	// /items/3 429 "2/1m";r=0;t=60
	//   Retry-After: 60
	// /users/1 200 "2/1m";r=1;t=60
}
