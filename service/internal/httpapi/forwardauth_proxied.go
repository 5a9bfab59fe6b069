package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"example.com/sash/httplimit"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// The headers in which a proxy describes its client's request. Any caller that reaches the endpoint can write
// them: it is for the proxy alone.
const (
	forwardedFor    = "X-Forwarded-For"
	forwardedMethod = "X-Forwarded-Method"
	forwardedURI    = "X-Forwarded-Uri"
	forwardedHost   = "X-Forwarded-Host"
)

// errDirect means that no proxy sent the request.
var errDirect = errors.New("there is no X-Forwarded header: the proxy has to send one, such as " + forwardedFor +
	", because a page in a browser cannot")

// fromProxy reports whether a request has an X-Forwarded header. A page of another origin cannot send one without a
// preflight request, which is refused here: otherwise it could charge any subject.
func fromProxy(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(name, "X-Forwarded-") {
			return true
		}
	}
	return false
}

// A proxied is a client's request as its proxy describes it.
type proxied struct {
	header http.Header
	fold   httplimit.PathFold // of its path
}

// proxiedValues are the entries that the proxy's headers give.
var proxiedValues = map[string]func(*proxied) (string, error){
	"remote_address": (*proxied).remoteAddress,
	"method":         func(p *proxied) (string, error) { return p.required(forwardedMethod) },
	"path":           (*proxied).path,
	"host":           (*proxied).host,
}

// parts are the descriptors of a request. An entry whose header the client did not send has an empty value:
// such requests count together, and leaving a header out is no way around a limit.
func (q *question) parts(header http.Header) ([]decide.Part, error) {
	p := &proxied{header, q.path}
	parts := make([]decide.Part, len(q.descriptors))
	for i, d := range q.descriptors {
		entries := make([]config.Entry, len(d))
		for j, s := range d {
			value, err := s.value(p)
			if err != nil {
				return nil, err
			}
			// A key of bytes that are no text would be none in the configuration, metrics and JSON either.
			entries[j] = config.Entry{Key: s.key, Value: strings.ToValidUTF8(value, "\uFFFD")}
		}
		parts[i] = decide.Part{Entries: entries, Cost: 1, ByRule: true}
	}
	return parts, nil
}

// errRepeated means that a header that counts is there more than once.
var errRepeated = errors.New("which of its values counts is not known")

// sole returns the value of a header. Of one that is there twice the application may read either: what was
// counted would be the client's choice.
func (p *proxied) sole(name string) (string, error) {
	values := p.header.Values(name)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", fmt.Errorf("the header %s is there %d times: %w", wire.Clip(name), len(values), errRepeated)
}

func (p *proxied) required(name string) (string, error) {
	value, err := p.sole(name)
	if err == nil && value == "" {
		err = fmt.Errorf("the header %s is missing: the proxy has to send it", name)
	}
	return value, err
}

var peer, _ = httplimit.NewClientAddress(nil)

// remoteAddress returns the address that the proxy itself saw, the last one of the header: anything to its
// left was written by the client. It is the prefix for IPv6, where one client has many addresses.
func (p *proxied) remoteAddress() (string, error) {
	lines := p.header.Values(forwardedFor)
	if len(lines) == 0 {
		return "", errors.New("the header " + forwardedFor + " is missing: the proxy has to send the client's address there")
	}
	last := lines[len(lines)-1]
	last = strings.Trim(last[strings.LastIndexByte(last, ',')+1:], " \t")
	addr, err := peer.Addr(&http.Request{RemoteAddr: last})
	switch {
	case err != nil:
		return "", fmt.Errorf("the header %s ends in %q, which is no address: the proxy has to send the client's there", forwardedFor, wire.Clip(last))
	case addr.Is4():
		return addr.String(), nil
	}
	return netip.PrefixFrom(addr, httplimit.DefaultIPv6Bits).Masked().String(), nil
}

// path returns the path without the query, folded: another spelling is the same path.
func (p *proxied) path() (string, error) {
	uri, err := p.required(forwardedURI)
	if err != nil {
		return "", err
	}
	if scheme, rest, absolute := strings.Cut(uri, "://"); absolute && !strings.ContainsAny(scheme, "/?#") {
		_, rest, _ = strings.Cut(rest, "/")
		uri = rest
	}
	uri, _, _ = strings.Cut(uri, "?")
	uri, _, fragment := strings.Cut(uri, "#")
	if fragment && p.fold != httplimit.CleanOnly { // a server may go on after it
		return "", fmt.Errorf("%w: the path has a fragment", httplimit.ErrBadKey)
	}
	return p.fold.Fold(uri)
}

// host returns the host name in small letters, without a port and a final dot.
func (p *proxied) host() (string, error) {
	host, err := p.required(forwardedHost)
	if err != nil {
		return "", err
	}
	name := (&url.URL{Host: host}).Hostname()
	return strings.ToLower(strings.TrimSuffix(name, ".")), nil
}
