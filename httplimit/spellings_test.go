package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/httplimit"
)

// A caller who has used up its limit sends the same credential in other spellings, each time from another
// address. Whatever the spelling, the caller is refused or charged: the function behind FirstOf, which would
// charge the address, does not get the request.
func TestNoSpellingOfAKeyEscapesItsLimit(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	address := func(header httplimit.Forwarding) httplimit.KeyFunc {
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
		{"X-Forwarded-For", address(httplimit.XForwardedFor), "X-Forwarded-For", "203.0.113.9", map[string][]string{
			"twice": {"203.0.113.9", "203.0.113.9"}, "joined": {"192.0.2.1, 203.0.113.9"}, "two lines": {"192.0.2.1", "203.0.113.9"},
			"garbage before": {"x\x00\"", "203.0.113.9"}, "with a port": {"203.0.113.9:80"}, "mapped": {"::ffff:203.0.113.9"},
		}},
		{"Forwarded", address(httplimit.Forwarded), "Forwarded", "for=203.0.113.9", map[string][]string{
			"twice": {"for=203.0.113.9", "for=203.0.113.9"}, "joined": {`for="x, for=203.0.113.9`}, "case": {"FOR=203.0.113.9"},
		}},
		{"X-Real-IP", address(httplimit.XRealIP), "X-Real-Ip", "203.0.113.9", map[string][]string{
			"twice": {"203.0.113.9", "203.0.113.9"}, "two": {"192.0.2.1", "203.0.113.9"}, "joined": {"192.0.2.1, 203.0.113.9"}, "blank before": {"", "203.0.113.9"},
		}},
	} {
		for name, values := range c.others {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				forwarding := strings.HasPrefix(c.plain, "203") || strings.HasPrefix(c.plain, "for=")
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

// A request that carries its key twice or malformed gets an error that says so, and OnError is not called: any
// client can send it.
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
