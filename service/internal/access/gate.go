package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/service/internal/throttle"
	"example.com/sash/service/internal/wire"
)

// lookEvery is how often Watch looks at the file, and how long the file must stay unchanged before it is used. A
// removed token still works for twice that time.
const lookEvery = 250 * time.Millisecond

// A Gate knows the clients in a file. A nil Gate has none. It is safe for concurrent use.
type Gate struct {
	path    string
	opts    Options
	log     throttle.Log
	clients atomic.Pointer[clients]
	last    []byte // only for Watch: the text of the file that was last used or found invalid
	seen    []byte // only for Watch: the text at the last look
}

// Options for Open. The zero value is the default.
type Options struct {
	Refused   func(reason string) // called for each refusal, with "unauthenticated" or the missing right; may be nil
	Anonymous Right               // rights of every caller without a file; zero is Decide
	Log       *slog.Logger        // gets refusals, at most one a second, and changes of the file; nil is slog.Default
}

// Open reads a file. An empty path means no file. A nil opts is the default.
func Open(path string, opts *Options) (*Gate, error) {
	g := &Gate{path: path, opts: *cmp.Or(opts, &Options{})}
	g.opts.Log = cmp.Or(g.opts.Log, slog.Default())
	g.log.To = g.opts.Log
	g.clients.Store(&clients{anonymous: grant{"": cmp.Or(g.opts.Anonymous, Decide)}})
	if path == "" {
		return g, nil
	}
	data, err := os.ReadFile(path)
	if g.last = data; err == nil {
		err = g.use(data)
	}
	if err != nil {
		return nil, fmt.Errorf("--access: %w", err)
	}
	return g, nil
}

// use makes the clients in a file's text current, unless the text is invalid.
func (g *Gate) use(data []byte) error {
	all, err := parse(g.path, data)
	if err == nil {
		g.clients.Store(all)
	}
	return err
}

func (g *Gate) listed() bool { return g != nil && g.path != "" }

func (g *Gate) current() *clients {
	if g == nil {
		return unlisted
	}
	return g.clients.Load()
}

// Anonymous returns, for people, what callers without credentials may do, and in which domains. Empty means nothing.
func (g *Gate) Anonymous() string {
	if may := g.current().anonymous; may.in("") != 0 {
		return may.String()
	}
	return ""
}

// HasTokens reports whether the file lists tokens. Callers then send tokens.
func (g *Gate) HasTokens() bool { return len(g.current().tokens) > 0 }

// Watch uses the file whenever it has changed, until the context ends, and returns nil.
func (g *Gate) Watch(ctx context.Context) error {
	if g.listed() {
		throttle.Repeat(ctx, func() time.Duration { g.look(); return lookEvery })
	}
	return nil
}

// look uses a changed file once it reads the same twice, because half a file may be valid. An invalid file changes no clients.
func (g *Gate) look() {
	data, err := os.ReadFile(g.path)
	if err != nil {
		data = []byte(err.Error()) // look logs it once
	}
	settled := bytes.Equal(data, g.seen)
	if g.seen = data; !settled || bytes.Equal(data, g.last) {
		return
	}
	if g.last = data; err == nil {
		err = g.use(data)
	}
	if err != nil {
		g.opts.Log.Error("the changed file of --access is wrong: the last valid one stays in use", "error", err)
		return
	}
	g.opts.Log.Info("the file of --access was changed", "clients", len(g.clients.Load().all))
}

// identify returns the caller that a token identifies, or else a certificate. The sender of a wrong token is never anonymous.
func (g *Gate) identify(tokens []string, cert *x509.Certificate, from any) (*Caller, error) {
	all := g.current()
	anonymous := &Caller{From: from, grant: all.anonymous}
	if !g.listed() {
		return anonymous, nil
	}
	var known *client
	var err error
	switch {
	case len(tokens) > 0:
		if len(tokens) == 1 && tokens[0] != "" {
			known = all.tokens[sha256.Sum256([]byte(tokens[0]))]
		}
		if known == nil {
			err = fmt.Errorf("%w: the token is not one of those that the file of --access lists by their SHA-256", ErrUnknown)
		}
	case cert != nil:
		known, err = all.certified(cert)
	}
	switch {
	case err != nil:
	case known != nil:
		return &Caller{known.name, from, known.grant}, nil
	case anonymous.in("") != 0:
		return anonymous, nil
	default:
		err = fmt.Errorf("%w: send a token of a client of the file of --access, as Authorization: Bearer TOKEN "+
			"(X-Sash-Token to forward-auth, AUTH over RESP)", ErrUnknown)
	}
	g.refuse("unauthenticated", anonymous, "", err)
	return nil, err
}

// certified returns the client of a certificate, or nil. A certificate with the names of two clients belongs to neither.
func (c *clients) certified(cert *x509.Certificate) (found *client, err error) {
	for _, name := range cert.DNSNames {
		one := c.certificates[strings.ToLower(name)]
		if one != nil && found != nil && one != found {
			return nil, fmt.Errorf("%w: the certificate has names of two clients of the file of --access, %s and %s: give each client a "+
				"certificate of its own, or one of them another name", ErrUnknown, found.name, one.name)
		}
		found = cmp.Or(one, found)
	}
	return found, nil
}

// refuse counts a refusal and logs it as an error, because Envoy by default lets a request through after an error.
func (g *Gate) refuse(reason string, caller *Caller, domain string, err error) {
	if g == nil {
		return
	}
	if g.opts.Refused != nil {
		g.opts.Refused(reason)
	}
	g.log.Log(slog.LevelError, "a caller was refused: Envoy, unless it has failure_mode_deny, lets such requests through",
		"client", cmp.Or(caller.Name, "anonymous"), "from", fmt.Sprint(caller.From), "domain", wire.Clip(domain), "reason", reason, "error", err)
}

// TLSFiles are the files of a port's certificate, in PEM. The port reads them again when they change, so certificates
// can be renewed without a restart.
type TLSFiles struct {
	Cert, Key string       // of the server
	ClientCA  string       // the authorities of clients; if empty, clients need no certificate
	ClientSAN string       // a DNS name that a client's certificate must have; empty accepts any
	Protocols []string     // offered to clients (ALPN); nil is h2, which gRPC needs
	Log       *slog.Logger // gets invalid files, once for each change; nil is slog.Default
}

// Config reads the files.
func (f TLSFiles) Config() (*tls.Config, error) {
	if f.ClientSAN != "" && f.ClientCA == "" {
		return nil, errors.New("a name for clients needs the authorities that certify them")
	}
	if f.Protocols == nil {
		f.Protocols = []string{"h2"}
	}
	stamps := f.stamps()
	current, err := f.read()
	if err != nil {
		return nil, err
	}
	// gRPC requires Certificates, and Verifies reads ClientAuth.
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: current.Certificates, ClientAuth: current.ClientAuth}
	var mu sync.Mutex
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if now := f.stamps(); now != stamps {
			stamps = now
			if changed, err := f.read(); err == nil {
				current = changed
			} else { // such as while they are being replaced
				cmp.Or(f.Log, slog.Default()).Error("a changed file of TLS is wrong: the last valid ones stay in use", "error", err)
			}
		}
		return current, nil
	}
	return config, nil
}

// Verifies reports whether a port with this configuration verifies client certificates. A nil configuration does not.
func Verifies(config *tls.Config) bool {
	return config != nil && config.ClientAuth == tls.RequireAndVerifyClientCert
}

// Certificate returns the verified certificate of a connection's client, or nil.
func Certificate(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

func (f *TLSFiles) stamps() (stamps [3]time.Time) {
	for i, name := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			stamps[i] = info.ModTime()
		}
	}
	return stamps
}

func (f *TLSFiles) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the server's certificate and key: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: f.Protocols, Certificates: []tls.Certificate{pair}}
	if f.ClientCA != "" {
		if config.ClientCAs, err = authorities(f.ClientCA); err != nil {
			return nil, fmt.Errorf("reading the authorities of clients: %w", err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if f.ClientSAN != "" {
		config.VerifyConnection = func(state tls.ConnectionState) error {
			return state.PeerCertificates[0].VerifyHostname(f.ClientSAN)
		}
	}
	return config, nil
}

// Certify adds to a client's configuration the authorities that it trusts, and its own certificate and key. An empty
// ca means the system's authorities, and an empty cert and key mean none.
func Certify(config *tls.Config, ca, cert, key string) (err error) {
	if ca != "" {
		if config.RootCAs, err = authorities(ca); err != nil {
			return err
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("the client's certificate and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return nil
}

func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}
