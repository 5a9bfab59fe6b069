package redisclient

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

func ping(t testing.TB, url string) error {
	t.Helper()
	client := newClient(t, url)
	defer client.Close()
	err := client.Ping(t.Context())
	if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(client.String(), "secret")) {
		t.Errorf("the password shows: %v: %v", client, err)
	}
	return err
}

func TestUsersAndPasswords(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret/word")
	if err := ping(t, "redis://:secret%2Fword@"+server.Addr()); err != nil {
		t.Error(err)
	}
	if err := ping(t, "redis://:secret2@"+server.Addr()); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with another password: %v", err)
	}
	server = redistest.Start(t)
	server.Must(t, "ACL", "SETUSER", "limiter", "on", ">secret", "~sash:*", "-@all", "+ping")
	if err := ping(t, "redis://limiter:secret@"+server.Addr()); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	server, _ := redistest.StartTLS(t)
	file := func(name string) string {
		return url.QueryEscape(server.Must(t, "CONFIG", "GET", name).([]any)[1].(string))
	}
	ca, cert, key := file("tls-ca-cert-file"), file("tls-cert-file"), file("tls-key-file")
	server.Must(t, "CONFIG", "SET", "tls-auth-clients", "yes")
	// A handshake is many milliseconds of work, and the test is not about them.
	at := "rediss://" + server.Addr() + "?dial_timeout=20s&read_timeout=20s"
	if err := ping(t, at+"&tls_ca="+ca+"&tls_cert="+cert+"&tls_key="+key); err != nil {
		t.Errorf("with certificates: %v", err)
	}
	if err := ping(t, at+"&tls_ca="+ca); err == nil {
		t.Error("the server took a client without a certificate")
	}
	if err := ping(t, at); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server of an unknown authority: %v", err)
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

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // a socket's path may have 107 bytes, and names of tests are long
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "redis.sock")
	redistest.Start(t, "--unixsocket", socket)
	if err := ping(t, "unix://"+socket); err != nil {
		t.Error(err)
	}
}
