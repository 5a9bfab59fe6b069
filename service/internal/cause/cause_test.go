package cause

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

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
		{"overload", fmt.Errorf("%w (%w)", failover.ErrOverload, failover.ErrBudget)},
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
		{"tls", dial(tls.AlertError(116))},
		{"tls", dial(&tls.CertificateVerificationError{Err: errors.New("x509: unknown authority")})},
		{"tls", dial(errors.New("remote error: tls: protocol version not supported"))},
		{"auth", errors.New("NOAUTH Authentication required")},
		{"loading", errors.New("goredisstore: log.lua: LOADING Redis is loading the dataset in memory")},
		{"script", errors.New("BUSY Redis is busy running a script")},
		{"memory", errors.New("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk")},
		{"cluster", errors.New("CLUSTERDOWN The cluster is down")},
		{"full", memstore.ErrFull},
		{"misconfigured", errors.New("ERR unknown command 'evalsha'")},
		{"error", errors.New("something else")},
	} {
		if got := Of(fmt.Errorf("the store failed: %w", c.err)); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
		if !slices.Contains(All, c.want) {
			t.Errorf("%q is no cause", c.want)
		}
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
