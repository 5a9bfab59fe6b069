// Package access decides what a caller of the data ports may do. A file lists clients, the tokens and certificates
// that identify them, and their rights. Its anonymous entry applies to callers without a token or certificate.
// Without a file all callers are anonymous and may only decide.
package access

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/middleware"
	"example.com/sash/service/internal/wire"
)

// A Right is one or several things that a caller may do in a domain.
type Right uint8

// Rights. The variable rights says what they mean.
const (
	Decide Right = 1 << iota
	Book
	Refund
	Override
	LongWindows
	All Right = 1<<iota - 1
)

// Bring returns the rights to set a limit in a request. A subject that a caller makes up is kept for as long as its window.
func Bring(limit *sash.Limit) Right {
	if limit.Window > 24*time.Hour || limit.Period == sash.CalendarMonth {
		return Override | LongWindows
	}
	return Override
}

// rights are all rights, under their names in the file.
var rights = []struct {
	name  string
	right Right
	means string
}{
	{"decide", Decide, "ask for decisions"},
	{"book", Book, "book further ahead than the max_wait of a rule"},
	{"refund", Refund, "give units back (is_negative_hits)"},
	{"override", Override, "set a limit in a request"},
	{"long_windows", LongWindows, "set a limit with a window of more than a day"},
}

// Errors of callers. Their texts say what to do.
var (
	// ErrUnknown means that a caller without credentials may not do this, or that its token is wrong.
	ErrUnknown = errors.New("not authenticated")
	// ErrNotAllowed means that a known caller lacks the right, or that nobody has it.
	ErrNotAllowed = errors.New("not allowed")
)

// A Caller is the sender of a request.
type Caller struct {
	Name string // of a client in the file; empty is anonymous
	From any    // the address, a string or a net.Addr
	grant
}

// A grant holds the rights in each domain. Rights under "" apply in all domains.
type grant map[string]Right

// in returns the rights in a domain. For an empty domain, it returns the rights that the grant has in any domain.
func (g grant) in(domain string) Right {
	if domain != "" {
		return g[""] | g[domain]
	}
	all := Right(0)
	for _, right := range g {
		all |= right
	}
	return all
}

func (g grant) with(domain string, more Right) grant {
	all := grant{domain: 0}
	maps.Copy(all, g)
	all[domain] |= g[""] | more
	return all
}

// String returns the grant as the file writes it: {"*": [decide], "shop": [decide, refund]}.
func (g grant) String() string {
	var text []string
	for _, domain := range slices.Sorted(maps.Keys(g)) {
		text = append(text, fmt.Sprintf("%q: [%s]", cmp.Or(domain, everywhere), g[domain].names()))
	}
	return "{" + strings.Join(text, ", ") + "}"
}

type key struct{}

// With returns a context for a request from the caller, who takes turns with other clients.
func With(ctx context.Context, caller *Caller) context.Context {
	return failover.WithClient(context.WithValue(ctx, key{}, caller), caller.Client())
}

// Client returns the name under which the caller takes turns: the name of the client in the file, or else [Party] of its address.
func (c *Caller) Client() string {
	if c.Name != "" {
		return c.Name
	}
	if tcp, ok := c.From.(*net.TCPAddr); ok { // for every call over gRPC
		return party(tcp.AddrPort().Addr())
	}
	return Party(fmt.Sprint(c.From))
}

// Party returns what connections from an address share: the address, or its /64 for IPv6, or that it is a Unix socket.
func Party(from string) string {
	peer, err := netip.ParseAddrPort(from)
	if err != nil {
		return "socket"
	}
	return party(peer.Addr())
}

func party(addr netip.Addr) string { return middleware.AddressKey(addr, middleware.DefaultIPv6Bits) }

// Caller returns the sender of a request from its context. If the context has none, the sender is anonymous.
func (g *Gate) Caller(ctx context.Context) *Caller {
	if caller, ok := ctx.Value(key{}).(*Caller); ok {
		return caller
	}
	return &Caller{grant: g.current().anonymous}
}

// Check is Permit for the sender of a request.
func (g *Gate) Check(ctx context.Context, domain string, need Right) error {
	return g.Permit(g.Caller(ctx), domain, need)
}

// May reports whether a caller has rights in a domain. Unlike [Gate.Permit], it counts and logs nothing.
func (c *Caller) May(domain string, need Right) bool { return need&^c.in(domain) == 0 }

// Permit returns nil if a caller has all rights that its request needs in a domain; an empty domain means any. Permit
// counts and logs its error, which is ErrUnknown or ErrNotAllowed.
func (g *Gate) Permit(caller *Caller, domain string, need Right) error {
	for _, r := range rights {
		if need&r.right == 0 || caller.May(domain, r.right) {
			continue
		}
		err := g.missing(caller, r.means, domain, need)
		g.refuse(r.name, caller, domain, err)
		return err
	}
	return nil
}

const mostShown = 16

// missing returns the error for a caller that lacks a right. It contains the whole entry for the file, so that nobody loses rights.
func (g *Gate) missing(caller *Caller, means, domain string, need Right) error {
	in := ""
	if domain = wire.Clip(domain); domain != "" {
		in = fmt.Sprintf(" in the domain %q", domain)
	}
	write := "allow: " + caller.with(domain, need|Decide).String() // every caller of the ports needs the right to decide
	if len(caller.grant) > mostShown {
		write = fmt.Sprintf("%v beside what its allow has", grant{domain: need | Decide})
	}
	switch {
	case !g.listed():
		return fmt.Errorf("%w: no caller may %s: start sash serve with --access FILE, and write into it anonymous: {%s}, "+
			"or a client with that right (sash token makes its token) beside anonymous: {allow: %v}", ErrNotAllowed, means, write, caller.grant)
	case caller.Name == "":
		return fmt.Errorf("%w: callers without a token may not %s%s: send one of a client that may, as Authorization: Bearer TOKEN "+
			"(X-Sash-Token to forward-auth, AUTH over RESP), or write into the file of --access anonymous: {%s}, in place of its "+
			"entry now", ErrUnknown, means, in, write)
	}
	return fmt.Errorf("%w: the client %s may not %s%s: give it %s in the file of --access, in place of its allow and domains now",
		ErrNotAllowed, caller.Name, means, in, write)
}

func (r Right) names() string {
	var names []string
	for _, one := range rights {
		if r&one.right != 0 {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, ", ")
}

// ProxyHeader carries a proxy's token to forward-auth, where Authorization belongs to the proxy's client.
const ProxyHeader = "X-Sash-Token"

// Identify returns a request with its caller in the context. Header is Authorization or ProxyHeader. It counts and logs an ErrUnknown.
func (g *Gate) Identify(r *http.Request, header string) (*http.Request, error) {
	tokens := r.Header.Values(header)
	if header == "Authorization" {
		tokens = bearers(tokens)
	}
	caller, err := g.identify(tokens, Certificate(r.TLS), r.RemoteAddr)
	if err != nil {
		return nil, err
	}
	return r.WithContext(With(r.Context(), caller)), nil
}

// Fail answers 401 or 403 for an error of Identify or Check.
func Fail(w http.ResponseWriter, err error) {
	code := http.StatusForbidden
	if errors.Is(err, ErrUnknown) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sash"`)
		code = http.StatusUnauthorized
	}
	wire.Fail(w, code, err.Error())
}

// bearers returns the tokens in the values of Authorization. A value of another scheme is a wrong token.
func bearers(values []string) []string {
	tokens := make([]string, len(values))
	for i, value := range values {
		if scheme, token, _ := strings.Cut(value, " "); strings.EqualFold(scheme, "Bearer") {
			tokens[i] = strings.TrimSpace(token)
		}
	}
	return tokens
}

// Stream checks the caller of a gRPC stream. Reflection needs the right to decide in some domain, and anyone may
// watch health. Stream is a grpc.StreamServerInterceptor.
func (g *Gate) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !strings.HasPrefix(info.FullMethod, "/grpc.health.v1.Health/") {
		caller, err := g.Call(stream.Context())
		if err == nil {
			err = g.Permit(caller, "", Decide)
		}
		if err != nil {
			return Status(err)
		}
		stream = identified{stream, With(stream.Context(), caller)}
	}
	return next(srv, stream)
}

// An identified stream has its caller in its context.
type identified struct {
	grpc.ServerStream
	ctx context.Context
}

func (s identified) Context() context.Context { return s.ctx }

// Call returns the sender of a gRPC call. It counts and logs its error, which is ErrUnknown.
func (g *Gate) Call(ctx context.Context) (*Caller, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		p = &peer.Peer{}
	}
	if !g.listed() {
		return g.identify(nil, nil, p.Addr)
	}
	secured, _ := p.AuthInfo.(credentials.TLSInfo)
	return g.identify(bearers(metadata.ValueFromIncomingContext(ctx, "authorization")), Certificate(&secured.State), p.Addr)
}

// Status returns the gRPC status for an error of Check or a wrong token: UNAUTHENTICATED or PERMISSION_DENIED.
func Status(err error) error {
	if errors.Is(err, ErrUnknown) {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	return status.Error(codes.PermissionDenied, err.Error())
}

// Login returns the caller of a connection. The connection sent a token, or none (""), and may have a verified
// certificate. From is its address, for the log. Login counts and logs its error, which is ErrUnknown.
func (g *Gate) Login(token string, cert *x509.Certificate, from any) (*Caller, error) {
	if token == "" {
		return g.identify(nil, cert, from)
	}
	return g.identify([]string{token}, cert, from)
}
