package adapters

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"example.com/sash/internal/redistest"
)

// foreign runs a test against servers that are not a Redis, or not the one that the client expects. call makes a
// client for an address and returns the error of its first decision, which must say what the server is and what to do.
func foreign(t *testing.T, call func(t testing.TB, addr string) error) {
	web, secureWeb := httptest.NewServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	secureWeb.Config.ErrorLog = log.New(io.Discard, "", 0)
	secureWeb.StartTLS()
	t.Cleanup(web.Close)
	t.Cleanup(secureWeb.Close)
	at := func(addr string) func(testing.TB) string { return func(testing.TB) string { return addr } }
	lines := func(greeting, answer string) func(testing.TB) string {
		return func(t testing.TB) string { return startLines(t, greeting, answer) }
	}
	for _, c := range []struct {
		name string
		addr func(testing.TB) string
		says []string
	}{
		{"a web server", at(web.Listener.Addr().String()), []string{"HTTP/1.1 400 Bad Request", "web server", "check the address"}},
		{"a web server with TLS", at(secureWeb.Listener.Addr().String()), []string{"TLS"}},
		{"a Redis with TLS", func(t testing.TB) string { secure, _ := redistest.StartTLS(t); return secure.Addr() }, []string{"TLS"}},
		{"memcached", lines("", "ERROR"), []string{"ERROR", "memcached"}},
		{"an SSH server", lines("SSH-2.0-OpenSSH_9.2", ""), []string{"SSH-2.0-OpenSSH_9.2", "SSH server"}},
		{"a mail server", lines("+OK ready", "+OK"), []string{"+OK", "not a Redis"}},
		{"a server of other bytes", lines("\x00\x17\x00\x01", "\x00\x01"), []string{"not a Redis", "check the address"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := call(t, c.addr(t))
			if err == nil {
				t.Fatal("it answered")
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v, want %q", err, text)
				}
			}
		})
	}
}

// startLines starts a server that greets with a line, unless that is empty, and answers every line with another.
func startLines(t testing.TB, greeting, answer string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				if greeting != "" {
					_, _ = conn.Write([]byte(greeting + "\r\n"))
				}
				for lines := bufio.NewReader(conn); ; {
					if _, err := lines.ReadString('\n'); err != nil {
						return
					}
					_, _ = conn.Write([]byte(answer + "\r\n"))
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		work.Wait()
	})
	return listener.Addr().String()
}
