package httplimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"example.com/sash/httplimit"
)

var proxies = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("fd00::/8"),
	netip.MustParsePrefix("::ffff:192.0.2.0/120"),
}

func TestClientAddress(t *testing.T) {
	for _, c := range []struct {
		name   string
		header string
		peer   string
		lines  []string
		want   string
	}{
		{"the peer, without a header", "", "203.0.113.9:80", nil, "203.0.113.9"},
		{"a header that is not configured", "", "10.0.0.1:80", []string{"198.51.100.1"}, "10.0.0.1"},
		{"an untrusted peer's header", "X-Forwarded-For", "203.0.113.9:80", []string{"198.51.100.1"}, "203.0.113.9"},
		{"a trusted peer without a header", "X-Forwarded-For", "10.0.0.1:80", nil, "10.0.0.1"},
		{"one hop", "X-Forwarded-For", "10.0.0.1:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"what the client claims stands to the left", "X-Forwarded-For", "10.0.0.1:80", []string{"127.0.0.1, 198.51.100.1"}, "198.51.100.1"},
		{"trusted hops are passed over", "X-Forwarded-For", "10.0.0.1:80", []string{"1.1.1.1, 198.51.100.1, 10.1.1.1,10.2.2.2"}, "198.51.100.1"},
		{"several lines are one list", "X-Forwarded-For", "10.0.0.1:80", []string{"1.1.1.1", "198.51.100.1", "10.1.1.1"}, "198.51.100.1"},
		{"only trusted hops", "X-Forwarded-For", "10.0.0.1:80", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		{"a malformed hop ends the walk", "X-Forwarded-For", "10.0.0.1:80", []string{"198.51.100.1, nonsense, 10.2.2.2"}, "10.2.2.2"},
		{"a malformed last hop", "X-Forwarded-For", "10.0.0.1:80", []string{"198.51.100.1, "}, "10.0.0.1"},
		{"an empty line", "X-Forwarded-For", "10.0.0.1:80", []string{"198.51.100.1", ""}, "10.0.0.1"},
		{"a hop with a port", "X-Forwarded-For", "10.0.0.1:80", []string{"198.51.100.1:5000"}, "198.51.100.1"},
		{"IPv6 with brackets and port", "X-Forwarded-For", "10.0.0.1:80", []string{"[2001:db8::1]:5000"}, "2001:db8::1"},
		{"IPv6 with brackets", "X-Forwarded-For", "10.0.0.1:80", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"IPv4 in brackets is malformed", "X-Forwarded-For", "10.0.0.1:80", []string{"[198.51.100.1]"}, "10.0.0.1"},
		{"leading zeros are malformed", "X-Forwarded-For", "10.0.0.1:80", []string{"198.051.100.1"}, "10.0.0.1"},
		{"a zone is dropped", "X-Forwarded-For", "10.0.0.1:80", []string{"fe80::1%eth0"}, "fe80::1"},
		{"a peer with a zone", "", "[fe80::1%eth0]:80", nil, "fe80::1"},
		{"a mapped address is IPv4", "X-Forwarded-For", "10.0.0.1:80", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"a mapped peer is trusted as IPv4", "X-Forwarded-For", "[::ffff:10.0.0.1]:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a trusted prefix in mapped form", "X-Forwarded-For", "192.0.2.7:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a trusted IPv6 peer with a zone", "X-Forwarded-For", "[fd00::1%eth0]:80", []string{"198.51.100.1"}, "198.51.100.1"},

		{"the real address", "X-Real-IP", "10.0.0.1:80", []string{" 198.51.100.1 "}, "198.51.100.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := &httplimit.AddressOptions{Header: c.header, Trusted: proxies}
			if c.header == "" {
				opts.Trusted = nil
			}
			client := newClientAddress(t, opts)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = c.peer
			for _, h := range []string{"X-Forwarded-For", "X-Real-Ip"} {
				r.Header.Set(h, "9.9.9.9") // the other headers differ and are ignored
			}
			r.Header[http.CanonicalHeaderKey(c.header)] = c.lines
			addr, err := client.Addr(r)
			if err != nil || addr.String() != c.want {
				t.Errorf("got %v, %v; want %s", addr, err, c.want)
			}
		})
	}
}

func TestClientAddressKeys(t *testing.T) {
	for _, c := range []struct {
		name string
		bits int
		peer string
		want string
	}{
		{"IPv4", 0, "203.0.113.9:1", "addr:203.0.113.9"},
		{"IPv6 by /64", 0, "[2001:db8:1:2:3::4]:1", "addr:2001%3Adb8%3A1%3A2%3A%3A/64"},
		{"another address of the same /64", 0, "[2001:db8:1:2:ffff::]:1", "addr:2001%3Adb8%3A1%3A2%3A%3A/64"},
		{"IPv6 by /48", 48, "[2001:db8:1:2:3::4]:1", "addr:2001%3Adb8%3A1%3A%3A/48"},
		{"IPv6 whole", 128, "[2001:db8::4]:1", "addr:2001%3Adb8%3A%3A4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := newClientAddress(t, &httplimit.AddressOptions{IPv6Bits: c.bits})
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = c.peer
			if key, err := client.Key(r); err != nil || key != c.want {
				t.Errorf("got %q, %v; want %q", key, err, c.want)
			}
		})
	}
}

func TestAddressOptionsThatContradict(t *testing.T) {
	for name, opts := range map[string]httplimit.AddressOptions{
		"a header that any client can send": {Header: "X-Forwarded-For"},
		"proxies but no header":             {Trusted: proxies},
		"a socket but no header":            {TrustUnix: true},
		"a header that is not read":         {Header: "Forwarded", Trusted: proxies},
		"a prefix too long":                 {IPv6Bits: 129},
		"a negative prefix":                 {IPv6Bits: -1},
		"the zero prefix":                   {Header: "X-Real-IP", Trusted: make([]netip.Prefix, 1)},
	} {
		if _, err := httplimit.NewClientAddress(&opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Whatever a client writes, the address that a trusted proxy appends decides: the client cannot choose it.
func FuzzClientAddress(f *testing.F) {
	for _, seed := range []string{"", "1.1.1.1", "1.1.1.1, 10.0.0.1", "[::1%x]:1", ",,,", `"`, `\",`} {
		f.Add(seed, uint8(1), "203.0.113.9:1")
		f.Add(seed, uint8(2), "[2001:db8::1]:1")
	}
	f.Fuzz(func(t *testing.T, claim string, header uint8, peer string) {
		how := []string{"X-Forwarded-For", "X-Real-IP"}[header%2]
		client := newClientAddress(t, &httplimit.AddressOptions{Header: how, Trusted: proxies})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		set := func(lines ...string) { r.Header[http.CanonicalHeaderKey(how)] = lines }

		r.RemoteAddr = peer
		set()
		alone, aloneErr := client.Addr(r)
		set(claim)
		addr, err := client.Addr(r)
		if (err == nil) != (aloneErr == nil) {
			t.Fatalf("peer %q: the header turns error %v into %v", peer, aloneErr, err)
		}
		if err == nil {
			if addr.Zone() != "" || addr.Is4In6() || !addr.IsValid() {
				t.Fatalf("address %v is not plain", addr)
			}
			trusted := false
			for _, p := range proxies[:2] {
				trusted = trusted || p.Contains(alone)
			}
			trusted = trusted || netip.MustParsePrefix("192.0.2.0/24").Contains(alone)
			if !trusted && addr != alone {
				t.Fatalf("the untrusted peer %v was taken for %v", alone, addr)
			}
			if key, err := client.Key(r); err != nil || !strings.HasPrefix(key, "addr:") {
				t.Fatalf("key %q, %v", key, err)
			}
		}

		if how == "X-Real-IP" {
			return // a proxy replaces it
		}
		const hop = "198.51.100.7"
		r.RemoteAddr = "10.0.0.1:80"
		for _, lines := range [][]string{{claim, hop}, {claim + ", " + hop}, {claim + "," + hop}} {
			set(lines...)
			if addr, err := client.Addr(r); err != nil || addr.String() != hop {
				t.Fatalf("%q: got %v, %v; the proxy reported %s", lines, addr, err, hop)
			}
		}
	})
}

func TestAProxyOnAUnixSocket(t *testing.T) {
	proxied := newClientAddress(t, &httplimit.AddressOptions{Header: "X-Forwarded-For", TrustUnix: true})
	direct := newClientAddress(t, nil)
	for _, c := range []struct {
		name   string
		client *httplimit.ClientAddress
		peer   string
		header string
		want   string // empty for none
	}{
		{"the proxy names the client", proxied, "@", "192.0.2.1, 203.0.113.9", "203.0.113.9"},
		{"with a path", proxied, "/run/web.sock", "203.0.113.9", "203.0.113.9"},
		{"the proxy names nobody", proxied, "@", "", ""},
		{"the client is hidden", proxied, "@", "unknown", ""},
		{"no proxy", proxied, "198.51.100.7:1", "203.0.113.9", "198.51.100.7"},
		{"not trusted", direct, "@", "203.0.113.9", ""},
		{"a path, not trusted", direct, "/run/socket", "", ""},
		{"nothing, not trusted", direct, "", "", ""},
		{"no socket", proxied, "pipe", "203.0.113.9", ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("X-Forwarded-For", c.header)
		addr, err := c.client.Addr(r)
		if c.want == "" && !errors.Is(err, httplimit.ErrNoKey) || c.want != "" && (err != nil || addr.String() != c.want) {
			t.Errorf("%s: %v, %v; want %q", c.name, addr, err, c.want)
		}
	}
}

func newClientAddress(t *testing.T, opts *httplimit.AddressOptions) *httplimit.ClientAddress {
	t.Helper()
	return must(httplimit.NewClientAddress(opts))(t)
}
