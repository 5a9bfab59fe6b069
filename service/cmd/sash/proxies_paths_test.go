//go:build proxies

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The application behind a proxy may be one that takes all of these for /login.
var loginSpellings = []string{
	"/LOGIN", "/login;v=1", "/login%20", `/login\`, "/x/..;/login",
	"/login%A0", "/login%85%85", "/login%3f1", "/login%231", "/lo%E2%80%8Cgin", "/lo%f8%80%80%81%a7in",
}

// Python's http.server reads a request line as Latin-1, and splits it at what is a space there. HAProxy refuses some
// of these itself.
var loginInLatin1 = []string{"/login\xa0", "/login\xa0\xa0", "/login\x85"}

// A client that has used up its limit of /login gets no further with other spellings of it: the proxy passes the path
// on as the client wrote it, and asks with path=all. With path=clean, which is how Sash counted before, all of them
// reach the application.
func TestProxiesCountEverySpellingOfAPath(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	const rules = "domain: web\ndescriptors:\n  - key: path\n    value: /login\n    descriptors:\n      - key: remote_address\n        limits: [\"3/1h\"]\n"
	put(t, policy, rules)
	for i := range proxies {
		for _, fold := range []string{"all", "clean"} {
			p := &proxies[i]
			t.Run(p.config+", path="+fold, func(t *testing.T) {
				s := &site{t: t, proxy: p}
				application := httptest.NewServer(s)
				defer application.Close()
				sash := spawn(t, nil, "--config", policy)
				listen := freeAddress(t)
				config := p.read(t, listen, strings.TrimPrefix(sash.url, "http://"), strings.TrimPrefix(application.URL, "http://"))
				if !strings.Contains(config, "&path=all") {
					t.Fatal("the example does not ask with path=all")
				}
				p.start(t, listen, strings.Replace(config, "&path=all", "&path="+fold, 1))
				for range 3 {
					if status := sendRaw(t, listen, "/login"); status != 200 {
						t.Fatalf("/login: %d", status)
					}
				}
				if status := sendRaw(t, listen, "/login"); status != 429 {
					t.Errorf("the fourth /login: %d", status)
				}
				spellings := append(slices.Clone(loginSpellings), loginInLatin1...)
				var got []string
				for _, spelled := range spellings {
					got = append(got, fmt.Sprintf("%q %d", spelled, sendRaw(t, listen, spelled)))
				}
				through := int(s.requests.Load()) - 3
				t.Logf("%d of %d spellings reached the application: %s", through, len(spellings), strings.Join(got, ", "))
				switch {
				case fold == "all" && through > 0:
					t.Errorf("%d reached the application, want none", through)
				case fold == "clean" && through < len(loginSpellings):
					t.Errorf("%d reached the application, want at least %d", through, len(loginSpellings))
				}
			})
		}
	}
}

// sendRaw sends a request with a path as it is written, and returns the status.
func sendRaw(t *testing.T, addr, path string) int {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, addr); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}
