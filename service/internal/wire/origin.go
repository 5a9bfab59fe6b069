package wire

import (
	"net/http"
	"slices"
)

// SameOrigin refuses requests that change something and come from a page of another origin: a browser sends them with
// the network access, cookies and certificates of its user. Programs send neither Origin nor Sec-Fetch-Site.
func SameOrigin(next http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Fail(w, http.StatusForbidden, "the request comes from a page of another origin, "+
			"or through a proxy that changes Host: it must hand it on, such as nginx with proxy_set_header Host $http_host")
	}))
	return guard.Handler(next)
}

// Pageless is SameOrigin for a port that serves no pages. It refuses those of its own origin too: of a name that meant
// another machine when its page was loaded, and now means this one (DNS rebinding). Over plain HTTP only Origin
// identifies them. Over HTTPS, where browsers send Sec-Fetch-Site, such a page would need a certificate for the name.
// Paths in except are not checked.
func Pageless(next http.Handler, except ...string) http.Handler {
	same := SameOrigin(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		safe := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		switch {
		case slices.Contains(except, r.URL.Path):
			next.ServeHTTP(w, r)
		case r.Method == http.MethodOptions && r.Header.Get("Origin") != "":
			Fail(w, http.StatusForbidden, "a page of another origin asks whether it may send a request: it may not")
		case !safe && r.Header.Get("Origin") != "" && r.Header.Get("Sec-Fetch-Site") == "":
			Fail(w, http.StatusForbidden, "the request comes from a page in a browser, which sends Origin: only programs may send it")
		default:
			same.ServeHTTP(w, r)
		}
	})
}
