package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"example.com/sash"
	"example.com/sash/middleware"
)

// A KeyFunc returns the key of the subject that a request is charged to. See [middleware.KeyFunc]. The answer
// to [ErrNoKey] and [ErrBadKey] is 400. [ErrExempt] exempts the request. The answer to any other error is 500.
type KeyFunc = middleware.KeyFunc[*http.Request]

// The errors of a KeyFunc: see package middleware.
var (
	ErrExempt = middleware.ErrExempt
	ErrNoKey  = middleware.ErrNoKey
	ErrBadKey = middleware.ErrBadKey
)

// field returns the header of that name, or an error if no header can have that name.
func field(name string) (f middleware.Field[*http.Request], err error) {
	if name == "" {
		return f, errors.New("httplimit: a header needs a name")
	}
	if strings.EqualFold(name, "Host") {
		return f, errors.New("httplimit: net/http keeps Host apart from the headers: read Request.Host in a KeyFunc of your own")
	}
	values := func(r *http.Request) []string { return r.Header.Values(name) }
	return middleware.Field[*http.Request]{Kind: "header", Name: name, Values: values}, nil
}

// Shared returns one key for all requests, for limits on all clients together.
func Shared(name string) KeyFunc { return middleware.Shared[*http.Request](name) }

// Header returns the value of a header as the key: see [middleware.Field.Key]. A client that can choose the
// header can choose the key, so the header must come from a trusted peer, such as your gateway. The name Host
// is an error on every request, because net/http does not keep it among the headers. So is an empty name.
func Header(name string) KeyFunc {
	f, err := field(name)
	if err != nil {
		return middleware.Invalid[*http.Request](err.Error())
	}
	return f.Key()
}

// APIKey returns the HMAC of the API key in a header, as [middleware.Field.APIKey] does: neither the store nor
// a log receives the API key. An empty hmacKey is an error, and so is a name that [Header] rejects.
//
// Each invented API key is a new subject. Authenticate first, or add a [Layer] per address.
func APIKey(header string, hmacKey []byte) (KeyFunc, error) {
	f, err := field(header)
	if err != nil {
		return nil, err
	}
	return f.APIKey(hmacKey)
}

// User returns the authenticated user as the key. The user function reads it from the request's context, where an earlier
// authentication stored it, and returns false if there is none. A nil function is an error on every request.
func User(user func(context.Context) (id string, ok bool)) KeyFunc {
	return middleware.User((*http.Request).Context, user)
}

// Pattern returns the pattern that the router matched, such as "GET /items/{id}", as the key: one subject per
// route, however many paths it has. The middleware must run after the router: around a handler given to
// http.ServeMux, or with chi's With. Before a ServeMux, use [PatternOf].
func Pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", errors.New("httplimit: the request has no pattern: put the middleware behind the router, or use PatternOf")
	}
	return sash.Key("route", r.Pattern), nil
}

// PatternOf returns the pattern that mux will match as the key, for a middleware before mux. Requests without a
// match share a key. A nil mux is an error on every request.
func PatternOf(mux *http.ServeMux) KeyFunc {
	if mux == nil {
		return middleware.Invalid[*http.Request]("httplimit: PatternOf needs the mux that the requests go to")
	}
	return func(r *http.Request) (string, error) {
		_, pattern := mux.Handler(r)
		pattern = cmp.Or(pattern, "none") // not a possible pattern: all have a slash
		return sash.Key("route", pattern), nil
	}
}

// Join combines the keys of all functions into one, such as a user's requests to one route: see [middleware.Join].
func Join(keys ...KeyFunc) KeyFunc { return middleware.Join(keys...) }

// FirstOf returns the first key that the request has: see [middleware.FirstOf].
func FirstOf(keys ...KeyFunc) KeyFunc { return middleware.FirstOf(keys...) }

// Reads reports whether the request's method promises to change nothing (GET, HEAD, OPTIONS, TRACE). It is
// meant for Layer.Match.
func Reads(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "":
		return true
	}
	return false
}

// Writes reports the opposite of [Reads].
func Writes(r *http.Request) bool { return !Reads(r) }

// AddressOptions configure how a client's address is found. The zero value uses the peer's address.
type AddressOptions struct {
	// Header is the one header in which proxies name the client, read from Trusted peers only. It is X-Forwarded-For, a list to
	// which each proxy appends its peer, or a header such as X-Real-IP, in which the nearest proxy writes one address. No other
	// header is read, because proxies pass on what the client sent. If it is empty, the peer is the client.
	Header string
	// Trusted are the addresses of your proxies.
	Trusted []netip.Prefix
	// TrustUnix trusts a peer without an address, as on a Unix socket. Without it, such a request has no key. A
	// Header needs Trusted or TrustUnix, and both of these need a Header.
	TrustUnix bool
	// IPv6Bits is the length of the IPv6 prefix that counts as one client: 1 to 128. Zero is middleware.DefaultIPv6Bits.
	IPv6Bits int
}

// A ClientAddress finds the address of the client of a request. It is safe for concurrent use.
//
// The peer of the connection is the client, unless it is a trusted proxy. Then the header's hops are read from the right,
// over all its lines. Each trusted hop vouches for the next, and the first untrusted hop is the client. Everything to its
// left comes from the client and is ignored. A hop that is not an address, such as "unknown", ends the walk: the proxy that
// reported it is charged. A header other than X-Forwarded-For has one address: several are [ErrBadKey].
type ClientAddress struct{ opts AddressOptions }

// NewClientAddress returns a ClientAddress, or an error for invalid options. Nil is the default.
func NewClientAddress(opts *AddressOptions) (*ClientAddress, error) {
	o := *cmp.Or(opts, &AddressOptions{})
	o.Header, o.IPv6Bits = http.CanonicalHeaderKey(o.Header), cmp.Or(o.IPv6Bits, middleware.DefaultIPv6Bits)
	switch trusting := len(o.Trusted) > 0 || o.TrustUnix; {
	case o.Header == "Forwarded":
		return nil, errors.New("httplimit: Forwarded (RFC 7239) is not read: let the proxy send X-Forwarded-For")
	case o.IPv6Bits < 1 || o.IPv6Bits > 128:
		return nil, fmt.Errorf("httplimit: IPv6Bits must be 1 to 128, not %d", o.IPv6Bits)
	case o.Header == "" && trusting:
		return nil, errors.New("httplimit: trusted proxies need a Header to read from them")
	case o.Header != "" && !trusting:
		return nil, fmt.Errorf("httplimit: header %v is read from trusted proxies only: set Trusted or TrustUnix, as any client can send it", o.Header)
	}
	o.Trusted = slices.Clone(o.Trusted)
	for i, p := range o.Trusted {
		if !p.IsValid() {
			return nil, fmt.Errorf("httplimit: prefix %d of the list is not valid", i)
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 { // the form in which addresses are compared
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		o.Trusted[i] = p.Masked()
	}
	return &ClientAddress{o}, nil
}

// Addr returns the client's address, or that of the proxy that does not report it. The address has no zone, and is IPv4 if it was
// mapped. The error is [ErrNoKey] if there is none, as on a Unix socket, and [ErrBadKey] if a header for one address has several.
func (c *ClientAddress) Addr(r *http.Request) (netip.Addr, error) {
	if c == nil {
		return netip.Addr{}, errors.New("httplimit: a nil ClientAddress: check the error of NewClientAddress")
	}
	o := &c.opts
	addr, ok := parseHop(r.RemoteAddr)
	socket := r.RemoteAddr == "" || r.RemoteAddr[0] == '@' || r.RemoteAddr[0] == '/' // the forms in which net/http names a peer on a Unix socket
	if !ok && !(o.TrustUnix && socket) {
		return addr, fmt.Errorf("%w: the peer %q has no address; AddressOptions.TrustUnix is for a proxy on a Unix socket", ErrNoKey, r.RemoteAddr)
	}
	if ok && (o.Header == "" || !contains(o.Trusted, addr)) {
		return addr, nil
	}
	lines := r.Header[o.Header]
	if o.Header != "X-Forwarded-For" && (len(lines) > 1 || len(lines) == 1 && strings.Contains(lines[0], ",")) {
		return netip.Addr{}, fmt.Errorf("%w: %v has several addresses; the proxy has to replace what the client sent", ErrBadKey, o.Header)
	}
	if addr = c.walk(lines, addr); !addr.IsValid() {
		return addr, fmt.Errorf("%w: the proxy on the Unix socket sends no usable %v", ErrNoKey, o.Header)
	}
	return addr, nil
}

func (c *ClientAddress) walk(lines []string, client netip.Addr) netip.Addr {
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			i := strings.LastIndexByte(line, ',')
			hop, ok := parseHop(strings.Trim(line[i+1:], " \t"))
			if !ok {
				return client
			}
			if client = hop; !contains(c.opts.Trusted, client) {
				return client
			}
			line, more = line[:max(i, 0)], i >= 0
		}
	}
	return client
}

// parseHop reads an address that may have a port and, around IPv6, brackets.
func parseHop(s string) (netip.Addr, bool) {
	var addr netip.Addr
	var err error
	switch bare, bracket := strings.CutPrefix(s, "["); {
	case bracket && strings.HasSuffix(bare, "]"):
		if addr, err = netip.ParseAddr(strings.TrimSuffix(bare, "]")); err == nil && !addr.Is6() {
			return netip.Addr{}, false
		}
	case bracket, strings.Count(s, ":") == 1: // an address without a port has no colon, or several
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(s)
		addr = withPort.Addr()
	default:
		addr, err = netip.ParseAddr(s)
	}
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.WithZone("").Unmap(), true
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Key is a [KeyFunc]. It returns an IPv4 address, or the prefix of an IPv6 address.
func (c *ClientAddress) Key(r *http.Request) (string, error) {
	addr, err := c.Addr(r)
	if err != nil {
		return "", err
	}
	return middleware.AddressKey(addr, c.opts.IPv6Bits), nil
}

var peer = &ClientAddress{AddressOptions{IPv6Bits: middleware.DefaultIPv6Bits}}

// PeerAddress is a [KeyFunc] that returns the address of the connection's peer, an IPv6 address as its /64. It
// reads no header. Behind a proxy all requests would have the proxy's address: see [NewClientAddress].
func PeerAddress(r *http.Request) (string, error) { return peer.Key(r) }
