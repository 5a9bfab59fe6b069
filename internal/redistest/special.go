package redistest

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// StartTLS starts a server that accepts only TLS, and stops it when the test ends. It also returns the configuration for
// clients, which trusts its certificate: that of package httptest.
func StartTLS(t testing.TB, args ...string) (*Server, *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	web := httptest.NewTLSServer(nil) // whose certificate is for 127.0.0.1
	defer web.Close()
	secret, err := x509.MarshalPKCS8PrivateKey(web.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: web.Certificate().Raw}, keyFile: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(web.Certificate())
	s := &Server{dir: dir, args: args}
	s.config = func() string { // called once the port is chosen
		return "port 0\ntls-port " + strconv.Itoa(s.port) + "\nbind 127.0.0.1\nsave \"\"\ndir " + dir + "\n" +
			"tls-cert-file " + certFile + "\ntls-key-file " + keyFile + "\ntls-ca-cert-file " + certFile + "\ntls-auth-clients no\n"
	}
	s.dial = func() (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: replyTimeout}, "tcp", s.Addr(), config)
	}
	s.begin(t)
	return s, config
}

// StartUnix is [Start] for a server that also listens on a Unix socket. It returns the path of the socket.
func StartUnix(t testing.TB, args ...string) (s *Server, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sash") //nolint:usetesting // a socket's path has 107 bytes at most; a test's directory can be longer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "redis.sock")
	return Start(t, append([]string{"--unixsocket", path}, args...)...), path
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

// Move sets how far the server's clock is ahead of the system's; a negative duration is behind. When
// it returns, the server has that time.
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
