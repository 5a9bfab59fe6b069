package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// open are the paths for everyone who reaches the port.
var open = []string{"/", "/stats", "/metrics", "/rlconfig", "/admin/v1/config", "/admin/v1/state"}

// private are the paths that change something or name users.
var private = []struct{ method, path, body string }{
	{"GET", "/debug/pprof/", ""},
	{"GET", "/debug/pprof/symbol", ""},
	{"GET", "/admin/v1/subject?domain=d&entry=user:ann", ""},
	{"POST", "/admin/v1/reset", `{"domain":"d","entries":[{"key":"user","value":"ann"}]}`},
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
		"no token":                 {one, "", http.StatusUnauthorized, "Authorization: Bearer"},
		"a wrong token":            {one, token + "x", http.StatusUnauthorized, ""},
		"the beginning of a token": {one, token[:20], http.StatusUnauthorized, ""},
		"an empty token":           {one, " ", http.StatusUnauthorized, ""},
		"no TLS":                   {Access{Certificates: true}, "", http.StatusUnauthorized, ""},
	} {
		var w *world
		for _, p := range private {
			w = begin(t, c.access) // where no wrong token came before
			w.token = c.token
			res, text := w.send(p.method, p.path, p.body)
			if res.StatusCode != c.status || !strings.Contains(text, c.say) {
				t.Errorf("%s: %s %s: %d %s, want %d", name, p.method, p.path, res.StatusCode, text, c.status)
			}
			if (res.StatusCode == http.StatusUnauthorized) != (res.Header.Get("WWW-Authenticate") != "") {
				t.Errorf("%s: %s: WWW-Authenticate %q", name, p.path, res.Header.Get("WWW-Authenticate"))
			}
		}
		w.token = "" // which none of these needs
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
	w := begin(t, one)
	for _, p := range private {
		if res, text := w.send(p.method, p.path, p.body); res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNotFound {
			t.Errorf("with the token: %s %s: %d %s", p.method, p.path, res.StatusCode, text)
		}
	}
}

// A page of another site cannot use the cookie or the certificate of a browser.
func TestOtherSites(t *testing.T) {
	w := begin(t, one)
	const ban = `{"domain":"d","entries":[{"key":"user","value":"ann"}],"expires":"1h"}`
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: cross-site"},
		{"Sec-Fetch-Site: same-site"},
		{"Origin: https://attacker.example"},
	} {
		for _, path := range []string{"/admin/v1/bans", "/login"} {
			if res, text := w.send("POST", path, ban, headers...); res.StatusCode != http.StatusForbidden || !strings.Contains(text, "proxy_set_header Host") {
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

func TestLoginAndLogout(t *testing.T) {
	w := begin(t, one)
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
	for name, value := range map[string]string{"another": strings.Repeat("A", len(cookie.Value)), "nothing": "", "the token": token} {
		if res, _ := w.send("GET", "/admin/v1/bans", "", as+value); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("a forged cookie (%s): %d", name, res.StatusCode)
		}
	}
	res, _ = w.send("POST", "/logout", "", as+cookie.Value)
	if len(res.Cookies()) != 1 || res.Cookies()[0].MaxAge >= 0 {
		t.Errorf("logout: %v", res.Cookies())
	}
	if res, _ := w.send("GET", "/admin/v1/bans", "", as+cookie.Value); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a copy of the cookie after the logout: %d", res.StatusCode)
	}
	res, _ = w.send("POST", "/login", "token="+token, form)
	if other := begin(t, one); len(res.Cookies()) == 1 {
		other.token = ""
		if res, _ := other.send("GET", "/admin/v1/bans", "", "Cookie: "+res.Cookies()[0].Name+"="+res.Cookies()[0].Value); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("at another instance, which does not learn of the logout: %d", res.StatusCode)
		}
	}
	w = begin(t, Access{Certificates: true})
	if res, _ := w.send("POST", "/login", "token=", form); res.StatusCode != http.StatusForbidden {
		t.Errorf("without a configured token: %d", res.StatusCode)
	}
}

func TestSessionsEnd(t *testing.T) {
	var s sessions
	now := time.Unix(1_800_000_000, 0)
	id := s.begin("ann", now)
	if s.by(id, now.Add(sessionLife-1)) != "ann" || s.by(id, now.Add(sessionLife)) != "" {
		t.Error("a session does not end when it should")
	}
	first := s.begin("first", now)
	for range mostSessions - 1 {
		now = now.Add(time.Second)
		id = s.begin("later", now)
	}
	if s.by(first, now) != "first" {
		t.Error("a session ended early")
	}
	if last := s.begin("last", now); s.by(first, now) != "" || s.by(id, now) != "later" || s.by(last, now) != "last" || len(s.open) != mostSessions {
		t.Errorf("beyond the bound the wrong session ended, and %d are open", len(s.open))
	}
}

// Two tokens work while clients change from one to the next, and the log names them without their values.
func TestTwoTokens(t *testing.T) {
	const next = "the-next-token-in-use"
	w := begin(t, Access{Tokens: []string{token, next}})
	for i, text := range []string{token, next} {
		var config struct{ Access struct{ By string } }
		w.token = text
		w.says(&config, http.StatusOK, "GET", "/admin/v1/config", "")
		if want := fmt.Sprintf("token %d", i+1); config.Access.By != want {
			t.Errorf("by %q, want %q", config.Access.By, want)
		}
		var gone map[string]string
		w.says(&gone, http.StatusOK, "POST", "/admin/v1/reset", `{"domain":"d","entries":[{"key":"user","value":"ann"}]}`)
	}
	logs := w.logs.String()
	if !strings.Contains(logs, `by="token 1"`) || !strings.Contains(logs, `by="token 2"`) || strings.Contains(logs, token) || strings.Contains(logs, next) {
		t.Errorf("logs: %s", logs)
	}
}

func TestWrongTokensAreSlowed(t *testing.T) {
	form := "Content-Type: application/x-www-form-urlencoded"
	for name, guess := range map[string]func(w *world, token string) (*reply, string){
		"bearer": func(w *world, token string) (*reply, string) {
			return w.send("GET", "/admin/v1/config", "", "Authorization: Bearer "+token)
		},
		"form": func(w *world, token string) (*reply, string) { return w.send("POST", "/login", "token="+token, form) },
	} {
		w := begin(t, one)
		cookie := w.login()
		w.token = ""
		examined := 0
		for range 500 {
			if res, _ := guess(w, "wrong"); res.StatusCode == http.StatusUnauthorized {
				examined++
			}
		}
		if examined != mostGuesses {
			t.Errorf("%s: %d guesses were examined", name, examined)
		}
		res, text := guess(w, token)
		wait, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if res.StatusCode != http.StatusTooManyRequests || err != nil || wait < 1 || wait > 60 {
			t.Errorf("%s: the right token then: %d, again after %q, %s", name, res.StatusCode, res.Header.Get("Retry-After"), text)
		}
		if res, text := w.send("GET", "/metrics", ""); res.StatusCode != http.StatusOK {
			t.Errorf("%s: without a token: %d %s", name, res.StatusCode, text)
		}
		if res, text := w.send("GET", "/admin/v1/bans", "", cookie); res.StatusCode != http.StatusOK {
			t.Errorf("%s: a session that was open before: %d %s", name, res.StatusCode, text)
		}
	}
}

func TestWeakTokens(t *testing.T) {
	for text, fine := range map[string]bool{
		"": false, strings.Repeat("x", MinToken): true, strings.Repeat("x", MinToken-1): false,
		"two words of some length": false, "a line\nand another one": false, strings.Repeat("é", MinToken): false,
	} {
		if err := (&Access{Tokens: []string{text}}).Check(); (err == nil) != fine {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAnAddressGuessesTenTokensAMinute(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := &Guard{guesses: newGuesses(func() time.Time { return now })}
	const from = "192.0.2.7:1"
	var group sync.WaitGroup // all guesses at once get no more answers
	var answered atomic.Int64
	for range 1000 {
		group.Go(func() {
			if g.withhold("192.0.2.8:1", true) != 0 {
				t.Error("another address has to wait too")
			}
			if g.withhold(from, false) == 0 {
				answered.Add(1)
			}
		})
	}
	group.Wait()
	if answered.Load() != mostGuesses {
		t.Errorf("%d guesses were answered within a minute", answered.Load())
	}
	if wait := g.withhold(from, true); wait != time.Minute {
		t.Errorf("the right token is withheld for %v", wait)
	}
	now = now.Add(time.Minute)
	if wait := g.withhold(from, true); wait != 0 {
		t.Errorf("a minute later the right token is withheld for %v", wait)
	}
}

// Where more addresses wait than are remembered, the answer to a further one shows nothing that 401 does not, and no
// operator is locked out.
func TestMoreGuessersThanAreRemembered(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := &Guard{guesses: newGuesses(func() time.Time { return now })}
	from := func(i int) string { return fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255) }
	const guessers = guessBytes / 368 // whose guesses come at one instant
	waiting := 0
	for i := range guessers * 6 / 5 {
		for range mostGuesses {
			g.withhold(from(i), false)
		}
		wrong, right := g.withhold(from(i), false), g.withhold(from(i), true)
		if (wrong > 0) != (right > 0) {
			t.Fatalf("address %d: a wrong token is withheld for %v, the right one for %v", i, wrong, right)
		}
		if wrong > 0 {
			waiting++
		}
	}
	if waiting < guessers*9/10 || waiting > guessers*11/10 {
		t.Errorf("%d addresses wait, want about %d", waiting, guessers)
	}
	if wait := g.withhold("192.0.2.7:1", true); wait != 0 {
		t.Errorf("the right token of another address is withheld for %v", wait)
	}
}
