package redisclient

import (
	"errors"
	"net"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

// The error of a client's first call says what happened and what to do.
func TestFirstErrors(t *testing.T) {
	plain, locked := redistest.Start(t), redistest.Start(t, "--requirepass", "secret")
	secure, _ := redistest.StartTLS(t)
	gone := redistest.Start(t)
	gone.Stop()
	hangs := redistest.Start(t)
	hangs.Pause()
	for _, c := range []struct{ name, url, happened, do string }{
		{"TLS to a port without", "rediss://" + plain.Addr(), "TLS handshake", "is it a TLS port?"},
		{"TLS to a cluster without", "rediss+cluster://" + plain.Addr(), "TLS handshake", "is it a TLS port?"},
		{"a port of TLS without", "redis://" + secure.Addr(), "", "rediss://"},
		{"an unknown authority", "rediss://" + secure.Addr(), "certificate", "tls_ca"},
		{"nobody there", "redis://" + gone.Addr(), "dial tcp " + gone.Addr() + ": connect: connection refused", "is the server running"},
		{"a server that hangs", "redis://" + hangs.Addr(), "dial tcp " + hangs.Addr() + ": no answer to PING: i/o timeout", "a server that hangs"},
		{"no password", "redis://" + locked.Addr(), "NOAUTH", "redis://user:password@"},
		{"a wrong password", "redis://:other@" + locked.Addr(), "WRONGPASS", "password is wrong"},
		{"no such database", "redis://" + plain.Addr() + "/99", "DB index", "leave it out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := Remedy(ping(t, c.url))
			if err == nil || !strings.Contains(err.Error(), c.happened) || !strings.Contains(err.Error(), c.do) {
				t.Errorf("%v, want %q and %q", err, c.happened, c.do)
			}
			if err != nil && strings.HasPrefix(err.Error(), "not tried again") {
				t.Errorf("it begins with what is no cause: %v", err)
			}
		})
	}
	if Remedy(nil) != nil {
		t.Error("no error has a remedy")
	}
}

// A handshake that fails is a connection that could not be made: nothing was sent.
func TestAFailedHandshakeIsOneOfDialling(t *testing.T) {
	server := redistest.Start(t)
	err := ping(t, "rediss://"+server.Addr())
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("%v", err)
	}
}
