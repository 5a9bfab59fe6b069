package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/httplimit"
)

// A caller who has used up its limit sends the same credential in other spellings, each time from another address. Whatever the spelling,
// the caller is refused or charged: the function behind FirstOf, which would charge the address, does not get the request.
func TestNoSpellingOfAKeyEscapesItsLimit(t *testing.T) {
	address := func(header string) httplimit.KeyFunc {
		c := newClientAddress(t, &httplimit.AddressOptions{Header: header, Trusted: proxies})
		return c.Key
	}
	secret := []byte("0123456789abcdef")
	long := strings.Repeat("k", 9000)
	for _, c := range []struct {
		name   string
		key    httplimit.KeyFunc
		header string
		plain  string
		others map[string][]string // values of the header, which carry the same credential
	}{
		{"a header", httplimit.Header("X-Tenant"), "X-Tenant", "t1", map[string][]string{
			"twice": {"t1", "t1"}, "two": {"t1", "t2"}, "blank before": {"", "t1"}, "blank after": {"t1", " "}, "padded": {" t1\t"},
		}},
		{"a long header", httplimit.Header("X-Tenant"), "X-Tenant", long, map[string][]string{"twice": {long, long}, "padded": {long + " "}}},
		{"an API key", apiKey(t, "X-Api-Key", secret), "X-Api-Key", "k1", map[string][]string{
			"twice": {"k1", "k1"}, "two": {"k2", "k1"}, "blank before": {"", "k1"}, "blank after": {"k1", ""}, "padded": {" k1 "},
			"joined": {"k1, k1"}, "joined with another": {"k2,k1"}, "joined with nothing": {"k1,"}, "NUL": {"k1\x00"},
			"tab": {"k1\tx"}, "no-break space": {"k1\u00a0"}, "no text": {"k1\xff"},
		}},
		{"a bearer token", apiKey(t, "Authorization", secret), "Authorization", "Bearer k1", map[string][]string{
			"twice": {"Bearer k1", "Bearer k1"}, "blank before": {"", "Bearer k1"}, "another scheme first": {"Basic eDp5", "Bearer k1"},
			"case": {"bEARER k1"}, "spaces": {"Bearer   k1 "}, "tab": {"Bearer\tk1"}, "two words": {"Bearer k1 x"},
			"joined": {"Bearer k1, Bearer k1"}, "joined with another scheme": {"Basic eDp5, Bearer k1"}, "joined with nothing": {"Bearer k1,"},
			"no scheme": {"k1"}, "a scheme alone": {"Bearer"}, "another scheme around": {"Basic Bearer k1"}, "NUL": {"Bearer k1\x00"},
		}},
		{"X-Forwarded-For", address("X-Forwarded-For"), "X-Forwarded-For", "203.0.113.9", map[string][]string{
			"twice": {"203.0.113.9", "203.0.113.9"}, "joined": {"192.0.2.1, 203.0.113.9"}, "two lines": {"192.0.2.1", "203.0.113.9"},
			"garbage before": {"x\x00\"", "203.0.113.9"}, "with a port": {"203.0.113.9:80"}, "mapped": {"::ffff:203.0.113.9"},
		}},
		{"X-Real-IP", address("X-Real-IP"), "X-Real-Ip", "203.0.113.9", map[string][]string{
			"twice": {"203.0.113.9", "203.0.113.9"}, "two": {"192.0.2.1", "203.0.113.9"}, "joined": {"192.0.2.1, 203.0.113.9"}, "blank before": {"", "203.0.113.9"},
		}},
	} {
		for name, values := range c.others {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				forwarding := strings.HasPrefix(c.plain, "203")
				h := newMiddleware(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(3)), httplimit.FirstOf(c.key, httplimit.PeerAddress), nil)(ok)
				admitted, sent := 0, 0
				send := func(values []string) {
					sent++
					res := get(h, "GET", "/", func(r *http.Request) {
						r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1", sent)
						if forwarding {
							r.RemoteAddr = "10.0.0.1:1"
						}
						r.Header[c.header] = values
					})
					switch res.status {
					case 200:
						admitted++
					case 400, 429:
					default:
						t.Errorf("status %d", res.status)
					}
				}
				for range 3 {
					send([]string{c.plain})
				}
				for range 5 {
					send(values)
				}
				if admitted != 3 {
					t.Errorf("%d admitted, want 3", admitted)
				}
			})
		}
	}
}

// A request that carries its key twice or malformed gets an error that says so, and OnError is not called: any client can send it.
func TestABadKeyIsTheClientsError(t *testing.T) {
	var reported error
	user := httplimit.User(func(context.Context) (string, bool) { return "", false })
	key := httplimit.FirstOf(user, apiKey(t, "X-Api-Key", []byte("secret")), httplimit.PeerAddress)
	h := newLayers(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(3)),
		&httplimit.Options{OnError: func(_ *http.Request, err error) { reported = err }},
		httplimit.Layer{Name: "all", Key: httplimit.Shared("all")}, httplimit.Layer{Name: "caller", Key: key})(ok)
	res := get(h, "GET", "/", func(r *http.Request) { r.Header["X-Api-Key"] = []string{"a", "b"} })
	wantStatus(t, res, 400)
	if p := problemOf(t, res); p.Detail != "The request identifies its caller more than once, or in a form that is not valid." || reported != nil {
		t.Errorf("detail %q, reported %v", p.Detail, reported)
	}
	wantField(t, get(h, "GET", "/", nil), "RateLimit", `"all:3/1m";r=2;t=60, "caller:3/1m";r=2;t=60`) // nothing was charged
}

type userKey struct{}

func userOf(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(userKey{}).(string)
	return id, ok
}

func TestKeys(t *testing.T) {
	secret := []byte("0123456789abcdef")
	failed := errors.New("failed")
	fails := func(*http.Request) (string, error) { return "", failed }
	exempt := func(*http.Request) (string, error) { return "", httplimit.ErrExempt }
	hashed := func(s string) string { return "apikey:" + sash.Secret(secret, s) }
	with := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
	}
	asUser := func(id string) func(*http.Request) {
		return func(r *http.Request) { *r = *r.WithContext(context.WithValue(r.Context(), userKey{}, id)) }
	}
	plain := func(*http.Request) {}
	for _, c := range []struct {
		name string
		key  httplimit.KeyFunc
		edit func(*http.Request)
		want string
		err  error
	}{
		{"shared", httplimit.Shared("a:b"), plain, "shared:a%3Ab", nil},
		{"header", httplimit.Header("X-Tenant"), with("X-Tenant", " t1 "), "header:x-tenant:t1", nil},
		{"an API key", apiKey(t, "X-Api-Key", secret), with("X-Api-Key", "k"), hashed("k"), nil},
		{"a bearer token", apiKey(t, "Authorization", secret), with("Authorization", "Bearer k"), hashed("k"), nil},
		{"a scheme with a list of parameters", apiKey(t, "Authorization", secret), with("Authorization", `Digest username="a", realm="b"`), "", httplimit.ErrNoKey},
		{"a name with a comma", httplimit.Header("X-Client-Dn"), with("X-Client-Dn", "CN=ann,O=x"), "header:x-client-dn:CN=ann,O=x", nil},
		{"a user", httplimit.User(userOf), asUser("42"), "user:42", nil},
		{"no user", httplimit.User(userOf), plain, "", httplimit.ErrNoKey},
		{"a pattern", httplimit.Pattern, func(r *http.Request) { r.Pattern = "GET /items/{id}" }, "route:GET%20/items/%7Bid%7D", nil},
		{"joined", httplimit.Join(httplimit.User(userOf), httplimit.PeerAddress), asUser("42"), "user:42:addr:203.0.113.9", nil},
		{"the first of two", httplimit.FirstOf(httplimit.User(userOf), httplimit.PeerAddress), asUser("42"), "user:42", nil},
		{"the second", httplimit.FirstOf(httplimit.User(userOf), httplimit.PeerAddress), plain, "addr:203.0.113.9", nil},
		{"an error does not go on to the next", httplimit.FirstOf(fails, httplimit.PeerAddress), plain, "", failed},
		{"nor does an exemption", httplimit.FirstOf(exempt, httplimit.PeerAddress), plain, "", httplimit.ErrExempt},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "203.0.113.9:1"
		c.edit(r)
		if key, err := c.key(r); key != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, key, err, c.want, c.err)
		}
	}
}

func apiKey(t *testing.T, header string, hmacKey []byte) httplimit.KeyFunc {
	t.Helper()
	return must(httplimit.APIKey(header, hmacKey))(t)
}

// A program whose configuration lacks the HMAC key does not start.
func TestAnAPIKeyNeedsAnHMACKeyAndAHeader(t *testing.T) {
	for says, c := range map[string]struct {
		header  string
		hmacKey []byte
	}{
		"32 random bytes": {"X-Api-Key", nil},
		"Request.Host":    {"host", []byte("secret")},
		"needs a name":    {"", []byte("secret")},
	} {
		if key, err := httplimit.APIKey(c.header, c.hmacKey); key != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that contains %q", err, says)
		}
	}
}

func TestReadsAndWrites(t *testing.T) {
	for method, reads := range map[string]bool{"GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "POST": false, "PUT": false, "PATCH": false, "DELETE": false, "QUERY": false} {
		r := httptest.NewRequest(method, "/", nil)
		if httplimit.Reads(r) != reads || httplimit.Writes(r) == reads {
			t.Errorf("%s reads: %v, writes: %v", method, httplimit.Reads(r), httplimit.Writes(r))
		}
	}
}

// A constructor of a KeyFunc returns no error, so every request fails and OnError receives what to do.
func TestInvalidKeyFuncsSayWhatIsWrong(t *testing.T) {
	var missing *httplimit.ClientAddress
	for says, key := range map[string]httplimit.KeyFunc{
		"Request.Host":        httplimit.Header("Host"),
		"needs a name":        httplimit.Header(""),
		"User":                httplimit.User(nil),
		"PatternOf":           httplimit.PatternOf(nil),
		"behind the router":   httplimit.Pattern,
		"Join needs":          httplimit.Join(),
		"Join needs key":      httplimit.Join(httplimit.PeerAddress, nil),
		"FirstOf needs":       httplimit.FirstOf(),
		"FirstOf needs key":   httplimit.FirstOf(nil),
		"NewClientAddress":    missing.Key,
		"a nil ClientAddress": httplimit.FirstOf(missing.Key, httplimit.PeerAddress),
	} {
		var reported error
		h := newMiddleware(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(1)), key, &httplimit.Options{
			OnError: func(_ *http.Request, err error) { reported = err },
		})(ok)
		wantStatus(t, get(h, "GET", "/", func(r *http.Request) { r.Host = "example.com" }), 500)
		if reported == nil || !strings.Contains(reported.Error(), says) {
			t.Errorf("OnError received %v, want one that contains %q", reported, says)
		}
	}
}
