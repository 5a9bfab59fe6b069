package redistest

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash/redisstore"
)

// StartTLS starts a server that accepts only TLS, with the configuration for clients, which trusts its certificate and no other.
func StartTLS(t testing.TB) (*Server, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	secret, err2 := x509.MarshalPKCS8PrivateKey(key)
	s, trusted := &Server{dir: t.TempDir()}, x509.NewCertPool()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	trusted.AppendCertsFromPEM(cert)
	certFile, keyFile := filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")
	err3 := os.WriteFile(certFile, cert, 0o600)
	err4 := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)
	if err := errors.Join(err, err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: trusted, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	s.config = func() string { // called once the port is chosen
		return fmt.Sprintf("port 0\ntls-port %d\nbind 127.0.0.1\nsave \"\"\ndir %s\ntls-cert-file %s\ntls-key-file %s\n"+
			"tls-ca-cert-file %[3]s\ntls-auth-clients no\n", s.port, s.dir, certFile, keyFile)
	}
	s.dial = func() (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: replyTimeout}, "tcp", s.Addr(), config)
	}
	s.begin(t)
	return s, config
}

//go:embed clock/clock.c
var clockSource []byte

// staleTime is longer than a server keeps a time of day that it has read. Valkey 9.1 asks for it once a
// millisecond, and in between counts on from it by the processor's clock.
const staleTime = 2 * time.Millisecond

// A Clock is the time of day of a server, which a test moves. It is safe for concurrent use.
type Clock struct{ file string }

// StartWithClock starts a server with a clock that the test can move while the server runs. Scripts read it, and keys expire
// by it. It needs Linux and a C compiler: cc, or the one that the environment variable CC names.
func StartWithClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	dir := t.TempDir()
	c, source, library := &Clock{file: filepath.Join(dir, "offset")}, filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := errors.Join(os.WriteFile(c.file, make([]byte, 8), 0o600), os.WriteFile(source, clockSource, 0o600)); err != nil {
		t.Fatal(err)
	}
	cc := cmp.Or(os.Getenv("CC"), "cc") // for a library that the server loads to read the moved clock in place of the system's
	out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, source).CombinedOutput()
	if err != nil {
		t.Fatalf("internal/redistest: a clock that moves needs a C compiler: run `make test`, which installs one, or install gcc and libc6-dev: %v\n%s", err, out)
	}
	s := &Server{dir: dir, args: args, env: []string{"LD_PRELOAD=" + library, "SASH_CLOCK=" + c.file}}
	s.begin(t)
	return s, c
}

// Move sets how far the server's clock is ahead of the system's; a negative duration is behind.
func (c *Clock) Move(t testing.TB, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0) // as it is: the server has mapped it
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(ahead.Nanoseconds()))
	if _, err := f.WriteAt(b[:], 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(staleTime)
}

// replyTimeout bounds one command, so that a test ends if its server hangs.
const replyTimeout = 30 * time.Second

// readReply reads one RESP2 reply. It returns an error reply as a value; its error is that of the connection.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("internal/redistest: the line %q is not a RESP reply", line)
	}
	kind, line := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return line, nil
	case '-':
		return errors.New(line), nil
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("internal/redistest: the line %q is not a RESP reply: %w", line, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case kind == '*':
		all := make([]any, n)
		for i := range all {
			if all[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("internal/redistest: unknown kind of reply %q", kind)
}

// Scripter returns a store's client over the plain connection of a server, for tests that use no client library.
func Scripter(server *Server) redisstore.Scripter { return scripter{server} }

type scripter struct{ server *Server }

// Cluster implements [redisstore.Scripter].
func (s scripter) Cluster() bool { return false }

// Run implements [redisstore.Scripter].
func (s scripter) Run(_ context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	tail := append(append([]string{strconv.Itoa(len(keys))}, keys...), arg)
	reply, err := s.server.Do(append([]string{"EVALSHA", script.SHA1}, tail...)...)
	if err != nil && strings.Contains(err.Error(), "NOSCRIPT") {
		reply, err = s.server.Do(append([]string{"EVAL", script.Text}, tail...)...)
	}
	text, _ := reply.(string)
	return text, err
}

// Dial returns a server that another process started. It takes commands, on one connection, and nothing else.
func Dial(addr string) *Server {
	return &Server{dial: func() (net.Conn, error) { return net.DialTimeout("tcp", addr, replyTimeout) }}
}
