package httpapi

import (
	"net/http"
	"strings"
	"testing"
)

// A page of another origin in its user's browser reaches what the user reaches. None of the paths lets it charge, give
// back or settle, whatever it may send without a preflight request.
func TestAPageOfAnotherOriginChangesNothing(t *testing.T) {
	h, _ := virtual(t)
	touched := false
	h = New(h.decider, &Options{JSON: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { touched = true })})
	const body = `{"domain":"d","entries":[{"key":"user","value":"victim"}],"cost":3}`
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"},
		{"Sec-Fetch-Site", "same-site"},                                                         // another program of this machine's name, on another port
		{"Origin", "https://page.example", "Content-Type", "application/x-www-form-urlencoded"}, // an old browser
		{"Origin", "null"},               // a sandboxed frame
		{"Origin", "http://example.com"}, // of this very origin: a name that now means this machine (DNS rebinding)
	} {
		for _, path := range h.mux.patterns {
			if path == forwardAuthPath {
				continue // which proxies call: below
			}
			if w := send(h, http.MethodPost, path, body, header...); w.Code != http.StatusForbidden {
				t.Errorf("%s from %v: %d %s", path, header, w.Code, w.Body)
			}
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} { // an image, a form, a preflight
		w := send(h, method, forwardAuthPath+"?domain=d&descriptor=user%3Dvictim", "", "Sec-Fetch-Site", "cross-site")
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "X-Forwarded") || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s forward-auth: %d %s", method, w.Code, w.Body)
		}
	}
	if w := allow(h, body); w.Code != http.StatusOK || touched {
		t.Errorf("the user has lost units to the page: %d %s", w.Code, w.Body)
	}
}

// nginx and Envoy hand the headers of their client on, and may use its method: the client may be a browser on a page
// of another origin, whose requests the application decides about.
func TestForwardAuthTakesTheClientsOwnOrigin(t *testing.T) {
	h, _ := edge(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		w := send(h, method, forwardAuthPath+"?domain=edge&descriptor=remote_address", "",
			"Sec-Fetch-Site", "cross-site", "Origin", "https://page.example", "X-Forwarded-For", "192.0.2.7")
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
}
