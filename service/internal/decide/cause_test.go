package decide

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// Errors of clients that wrap the cause. Those of real servers are in service/internal/degrade.
func TestCause(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, c := range []struct {
		want string
		err  error
	}{
		{"down", fmt.Errorf("%w: %w", failover.ErrDown, failover.ErrBudget)},
		{"busy", failover.ErrBusy},
		{"budget", failover.ErrBudget},
		{"budget", fmt.Errorf("call: %w", context.DeadlineExceeded)},
		{"budget", dial(os.ErrDeadlineExceeded)},
		{"rejected", fmt.Errorf("%w: WRONGTYPE", driver.ErrRejected)},
		{"refused", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))},
		{"refused", dial(syscall.EHOSTUNREACH)},
		{"lost", fmt.Errorf("read: %w", io.EOF)},
		{"lost", &net.OpError{Op: "read", Err: syscall.ECONNRESET}},
		{"dns", dial(&net.DNSError{Err: "no such host", Name: "nowhere.invalid"})},
		{"protocol", dial(&redisstore.ForeignError{Said: "HTTP/1.1 400 Bad Request"})},
		{"tls", dial(&redisstore.ForeignError{Said: "\x15\x03\x01"})},
		{"auth", errors.New("NOAUTH Authentication required")},
		{"loading", errors.New("goredisstore: log.lua: LOADING Redis is loading the dataset in memory")},
		{"script", errors.New("BUSY Redis is busy running a script")},
		{"memory", errors.New("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk")},
		{"cluster", errors.New("CLUSTERDOWN The cluster is down")},
		{"full", memstore.ErrFull},
		{"misconfigured", errors.New("ERR unknown command 'evalsha'")},
		{"error", errors.New("something else")},
	} {
		if got := Cause(fmt.Errorf("the store failed: %w", c.err)); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
		if !slices.Contains(Causes, c.want) {
			t.Errorf("%q is no cause", c.want)
		}
	}
}

// Errors of connecting to servers that end the connection, or that use TLS in another way.
func TestCauseOfConnecting(t *testing.T) {
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	web.StartTLS()
	defer web.Close()
	oldest := httptest.NewUnstartedServer(http.NotFoundHandler())
	oldest.Config.ErrorLog = web.Config.ErrorLog
	oldest.TLS = &tls.Config{MaxVersion: tls.VersionTLS12}
	oldest.StartTLS()
	defer oldest.Close()
	closing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closing.Close()
	go func() {
		for {
			conn, err := closing.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	for _, c := range []struct {
		name, want, addr string
		config           *tls.Config // nil is without TLS
	}{
		{"the server ends the connection", "lost", closing.Addr().String(), nil},
		{"the server ends the handshake", "lost", closing.Addr().String(), &tls.Config{InsecureSkipVerify: true}},
		{"only the server uses TLS, and does not say so", "lost", oldest.Listener.Addr().String(), nil},
		{"nobody trusts the certificate", "tls", web.Listener.Addr().String(), &tls.Config{ServerName: "redis"}},
		{"the server requires a certificate", "tls", web.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}},
		{"no version in common", "tls", oldest.Listener.Addr().String(),
			&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := redisstore.Dial(ctx, c.addr, func(ctx context.Context) (net.Conn, error) {
				if c.config != nil {
					return (&tls.Dialer{Config: c.config}).DialContext(ctx, "tcp", c.addr)
				}
				return new(net.Dialer).DialContext(ctx, "tcp", c.addr)
			})
			if err == nil {
				t.Fatal("it answered")
			}
			if got := Cause(err); got != c.want {
				t.Errorf("%v is %q, want %q", err, got, c.want)
			}
		})
	}
}

func TestRemedies(t *testing.T) {
	for text, do := range map[string]string{
		"NOAUTH Authentication required.": "percent-encoded", "read: " + io.EOF.Error(): "",
		"TLS handshake: read: connection reset by peer (is it a TLS port?)": "", "ERR unknown command": "",
	} {
		err := Remedy(errors.New(text))
		if !strings.HasPrefix(err.Error(), text) || !strings.Contains(err.Error(), do) || do == "" && err.Error() != text {
			t.Errorf("%s: %v", text, err)
		}
	}
	if Remedy(nil) != nil {
		t.Error("no error has a remedy")
	}
}
