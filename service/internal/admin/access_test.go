package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// open are the paths for everyone who reaches the port.
var open = []string{"/", "/stats", "/metrics", "/rlconfig", "/admin/v1/config", "/admin/v1/store"}

// private are the paths that change something or name users.
var private = []struct{ method, path, body string }{
	{"GET", "/admin/v1/top", ""},
	{"GET", "/admin/v1/subject?domain=d&entry=user:ann", ""},
	{"POST", "/admin/v1/reset", `{"domain":"d","entries":[{"key":"user","value":"ann"}]}`},
	{"POST", "/admin/v1/store", `{"state":"down"}`},
	{"DELETE", "/admin/v1/store", ""},
	{"GET", "/admin/v1/bans", ""},
	{"POST", "/admin/v1/bans", `{"domain":"d","entries":[{"key":"user","value":"ann"}],"expires":"1h"}`},
	{"DELETE", "/admin/v1/bans/0123456789abcdef", ""},
	{"GET", "/admin/v1/overrides", ""},
	{"POST", "/admin/v1/overrides", `{"domain":"d","entries":[{"key":"user","value":"ann"}],"limits":["9/1h"],"expires":"1h"}`},
	{"DELETE", "/admin/v1/overrides/0123456789abcdef", ""},
}

func TestPrivatePathsNeedAccess(t *testing.T) {
	for name, c := range map[string]struct {
		access Access
		token  string
		status int
		say    string
	}{
		"nothing is set up":        {Access{}, "", http.StatusForbidden, "--admin-token-file"},
		"a token that is not":      {Access{}, token, http.StatusForbidden, "SASH_ADMIN_TOKEN"},
		"no token":                 {Access{Token: token}, "", http.StatusUnauthorized, "Authorization: Bearer"},
		"a wrong token":            {Access{Token: token}, token + "x", http.StatusUnauthorized, ""},
		"the beginning of a token": {Access{Token: token}, token[:20], http.StatusUnauthorized, ""},
		"an empty token":           {Access{Token: token}, " ", http.StatusUnauthorized, ""},
		"no TLS":                   {Access{Certificates: true}, "", http.StatusUnauthorized, ""},
	} {
		w := begin(t, c.access)
		w.token = c.token
		for _, p := range private {
			res, text := w.send(p.method, p.path, p.body)
			if res.StatusCode != c.status || !strings.Contains(text, c.say) {
				t.Errorf("%s: %s %s: %d %s, want %d", name, p.method, p.path, res.StatusCode, text, c.status)
			}
			if (res.StatusCode == http.StatusUnauthorized) != (res.Header.Get("WWW-Authenticate") != "") {
				t.Errorf("%s: %s: WWW-Authenticate %q", name, p.path, res.Header.Get("WWW-Authenticate"))
			}
		}
		for _, path := range open {
			if res, text := w.send("GET", path, ""); res.StatusCode != http.StatusOK {
				t.Errorf("%s: GET %s: %d %s", name, path, res.StatusCode, text)
			}
		}
		if !w.asks("user", "ann") {
			t.Errorf("%s: a ban was set", name)
		}
		if strings.Contains(w.logs.String(), token) {
			t.Errorf("%s: the token is in the log: %s", name, w.logs)
		}
	}
	w := begin(t, Access{Token: token})
	for _, p := range private {
		if res, text := w.send(p.method, p.path, p.body); res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNotFound {
			t.Errorf("with the token: %s %s: %d %s", p.method, p.path, res.StatusCode, text)
		}
	}
}

// Profiles are for callers on this machine, and for others with the token.
func TestProfilesOfOtherMachines(t *testing.T) {
	w := begin(t, Access{Token: token})
	w.token = ""
	if res, _ := w.send("GET", "/debug/pprof/", ""); res.StatusCode != http.StatusOK {
		t.Errorf("from loopback: %d", res.StatusCode)
	}
	for _, c := range []struct {
		from string
		near bool
	}{{"127.0.0.1:1", true}, {"[::1]:1", true}, {"192.0.2.7:1", false}, {"", false}, {"@", false}} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "/debug/pprof/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = c.from
		if local(r) != c.near {
			t.Errorf("%s counts as this machine: %v", c.from, !c.near)
		}
		if c.from == "" {
			continue
		}
		for bearer, status := range map[string]int{"": http.StatusUnauthorized, token: http.StatusOK} {
			if c.near {
				status = http.StatusOK
			}
			r.Header.Set("Authorization", "Bearer "+bearer)
			answer := httptest.NewRecorder()
			if w.server.Config.Handler.ServeHTTP(answer, r); answer.Code != status {
				t.Errorf("from %s with %q: %d, want %d", c.from, bearer, answer.Code, status)
			}
		}
	}
}

func TestProfilesUnderAnotherName(t *testing.T) {
	w := begin(t, Access{})
	for host, status := range map[string]int{
		"localhost:6070": http.StatusOK, "127.0.0.1:6070": http.StatusOK, "[::1]:6070": http.StatusOK,
		"evil.example:6070": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden,
	} {
		r := httptest.NewRequest("GET", "/debug/pprof/", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", host
		answer := httptest.NewRecorder()
		if w.server.Config.Handler.ServeHTTP(answer, r); answer.Code != status {
			t.Errorf("requested as %s: %d, want %d", host, answer.Code, status)
		}
	}
}

// A page of another site cannot use the cookie or the certificate of a browser.
func TestOtherSites(t *testing.T) {
	w := begin(t, Access{Token: token})
	const ban = `{"domain":"d","entries":[{"key":"user","value":"ann"}],"expires":"1h"}`
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: cross-site"},
		{"Sec-Fetch-Site: same-site"},
		{"Origin: https://attacker.example"},
	} {
		for _, path := range []string{"/admin/v1/bans", "/login"} {
			if res, text := w.send("POST", path, ban, headers...); res.StatusCode != http.StatusForbidden {
				t.Errorf("%v to %s: %d %s", headers, path, res.StatusCode, text)
			}
		}
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense;;"} {
		if res, text := w.send("POST", "/admin/v1/bans", ban, "Content-Type: "+kind); res.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %d %s", kind, res.StatusCode, text)
		}
	}
	if !w.asks("user", "ann") {
		t.Error("a ban was set")
	}
}

func TestLogin(t *testing.T) {
	w := begin(t, Access{Token: token})
	w.token = ""
	form := "Content-Type: application/x-www-form-urlencoded"
	if res, _ := w.send("POST", "/login", "token=wrong", form); res.StatusCode != http.StatusUnauthorized || len(res.Cookies()) > 0 {
		t.Errorf("a wrong token: %d, %v", res.StatusCode, res.Cookies())
	}
	res, _ := w.send("POST", "/login", "token="+strings.ReplaceAll(token, " ", "+"), form)
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) != 1 {
		t.Fatalf("%d, %v", res.StatusCode, res.Cookies())
	}
	cookie := res.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.Value, token) {
		t.Errorf("the cookie is %s", cookie.Raw)
	}
	as := "Cookie: " + cookie.Name + "="
	if res, text := w.send("GET", "/admin/v1/bans", "", as+cookie.Value); res.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %d %s", res.StatusCode, text)
	}
	end, signature, _ := strings.Cut(cookie.Value, ".")
	later := strings.Replace(end, end[:1], "9", 1)
	for name, value := range map[string]string{"longer": later + "." + signature, "unsigned": end + ".", "nothing": "", "the token": token} {
		if res, _ := w.send("GET", "/admin/v1/bans", "", as+value); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("a forged cookie (%s): %d", name, res.StatusCode)
		}
	}
	res, _ = w.send("POST", "/logout", "")
	if len(res.Cookies()) != 1 || res.Cookies()[0].MaxAge >= 0 {
		t.Errorf("logout: %v", res.Cookies())
	}
	access := Access{Token: token}
	now := time.Now()
	if value := access.session(now.Add(session)); !access.live(value, now) || access.live(value, now.Add(session)) {
		t.Error("a session does not end when it should")
	}
	if other := (&Access{Token: token + "!"}); other.live(access.session(now.Add(session)), now) {
		t.Error("a session outlives its token")
	}
	w = begin(t, Access{Certificates: true})
	if res, _ := w.send("POST", "/login", "token=", form); res.StatusCode != http.StatusForbidden {
		t.Errorf("without a configured token: %d", res.StatusCode)
	}
}

func TestWeakTokens(t *testing.T) {
	for text, fine := range map[string]bool{
		"": true, strings.Repeat("x", MinToken): true, strings.Repeat("x", MinToken-1): false,
		"two words of some length": false, "a line\nand another one": false, strings.Repeat("é", MinToken): false,
	} {
		if err := (&Access{Token: text}).Check(); (err == nil) != fine {
			t.Errorf("%q: %v", text, err)
		}
	}
}
