package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/wire"
)

// clientWith is a file with a client whose token is TOKEN.
func clientWith(more string) string {
	sum := sha256.Sum256([]byte("TOKEN"))
	return "clients: [{name: a, tokens: [" + hex.EncodeToString(sum[:]) + "], " + more + "}]\n"
}

func sendFrom(from string, h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	return send(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = from
		h.ServeHTTP(w, r)
	}), method, path, `{"domain":"d"}`, header...)
}

// No path answers a stranger but health and the document, and a path that is added later does not either.
func TestNoPathAnswersAStranger(t *testing.T) {
	touched, asked := 0, 0
	h := newHandler(t, memstore.New(nil), &Options{
		Access: servertest.Gate(t, clientWith("allow: [decide]")),
		JSON:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { touched++ }),
	})
	for path := range h.paths {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, header := range [][]string{
				nil, {"Authorization", "Bearer guess"}, {"X-Sash-Token", "guess"}, {"Authorization", "Bearer "}, {"Authorization", "Basic VE9LRU4="},
			} {
				asked++ // each from an address of its own, so that it is not one that guesses
				w := sendFrom(fmt.Sprintf("192.0.2.%d:1", asked), h, method, path, header...)
				if open[path] {
					if w.Code == http.StatusUnauthorized {
						t.Errorf("%s %s needs credentials: %s", method, path, w.Body)
					}
				} else if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("%s %s with %v: %d %s", method, path, header, w.Code, w.Body)
				}
			}
		}
	}
	if len(open) != 3 || touched > 0 {
		t.Errorf("%d open paths, and %d strangers at /json", len(open), touched)
	}
}

// A client may decide in its domains only, and settle reservations of those only: a token that it has seen is no right.
func TestAClientDecidesInItsDomains(t *testing.T) {
	token := []string{"Authorization", "Bearer TOKEN"}
	const body = `{"domain":"d","entries":[{"key":"user","value":"a"}]}`
	keys := [][]byte{[]byte("one secret of all instances")} // so that only rights refuse a settlement
	may := func(what string) *Handler {
		return newHandler(t, memstore.New(nil), &Options{Tokens: wire.NewTokens(keys...), Access: servertest.Gate(t, clientWith(what))})
	}
	here, elsewhere, powerless := may("allow: [decide], domains: [d]"), may("allow: [decide], domains: [e]"), may("allow: [override]")
	for h, want := range map[*Handler]int{here: 200, elsewhere: 403, powerless: 403} { // openapi_test.go has the other paths
		if w := send(h, http.MethodPost, "/v1/allow", body, token...); w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	for _, path := range []string{"/v1/settle", "/v1/cancel"} {
		used := map[string]string{"/v1/settle": `,"used":0`}[path]
		for h, want := range map[*Handler]int{here: 200, elsewhere: 403, powerless: 403} {
			var reserved struct{ Token string }
			servertest.Check(t, json.Unmarshal(send(here, http.MethodPost, "/v1/reserve", body, token...).Body.Bytes(), &reserved))
			if w := send(h, http.MethodPost, path, `{"token":"`+reserved.Token+`"`+used+`}`, token...); w.Code != want {
				t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
			}
			send(here, http.MethodPost, "/v1/cancel", `{"token":"`+reserved.Token+`"}`, token...)
		}
	}
	const auth = forwardAuthPath + "?domain=d&descriptor=user%3Db"
	for _, x := range []struct {
		header []string
		want   int
	}{{[]string{"X-Sash-Token", "TOKEN", "Authorization", "Bearer of the client"}, 200}, {token, 401}} { // where the client's own is
		if w := send(here, http.MethodGet, auth, "", append(x.header, "X-Forwarded-For", "192.0.2.7")...); w.Code != x.want {
			t.Errorf("forward-auth with %v: %d %s, want %d", x.header, w.Code, w.Body, x.want)
		}
	}
}

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
		for path := range h.paths {
			if path == forwardAuthPath {
				continue // which proxies call: below
			}
			if w := send(h, http.MethodPost, path, body, header...); w.Code != http.StatusForbidden {
				t.Errorf("%s from %v: %d %s", path, header, w.Code, w.Body)
			}
		}
	}
	if w := send(h, http.MethodOptions, "/json", "", "Sec-Fetch-Site", "cross-site", "Origin", "https://page.example"); w.Code != http.StatusForbidden {
		t.Errorf("a preflight request: %d %s", w.Code, w.Body)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} { // an image, a form, a preflight
		w := send(h, method, forwardAuthPath+"?domain=d&descriptor=user%3Dvictim", "", "Sec-Fetch-Site", "cross-site")
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "X-Forwarded") || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s forward-auth: %d %s", method, w.Code, w.Body)
		}
	}
	// nginx and Envoy hand the headers of their client on, whose requests the application decides about.
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		w := send(h, method, forwardAuthPath+"?domain=d&descriptor=day=a", "", "Sec-Fetch-Site", "cross-site", "X-Forwarded-For", "192.0.2.7")
		if w.Code != http.StatusOK {
			t.Errorf("%s for a client: %d %s", method, w.Code, w.Body)
		}
	}
	if w := allow(h, body); w.Code != http.StatusOK || touched {
		t.Errorf("the user has lost units to the page: %d %s", w.Code, w.Body)
	}
}
