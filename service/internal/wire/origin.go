package wire

import "net/http"

// SameOrigin refuses requests that change something and come from a page of another origin: a browser sends them with
// the network access, cookies and certificates of its user. Programs send neither Origin nor Sec-Fetch-Site. Paths in
// except are not checked.
func SameOrigin(next http.Handler, except ...string) http.Handler {
	guard := http.NewCrossOriginProtection()
	for _, path := range except {
		guard.AddInsecureBypassPattern(path)
	}
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Fail(w, http.StatusForbidden, "the request comes from a page of another origin: a browser must not send it")
	}))
	return guard.Handler(next)
}
