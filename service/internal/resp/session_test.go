package resp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
)

// What clients send before they send commands, with the replies of Redis.
func TestClientsConnectWithoutComplaint(t *testing.T) {
	p := open(t, "")
	c := p.connect(t)
	c.is("PING", "PONG")
	c.is("PING there", "there")
	c.is("ECHO there", "there")
	c.is("SELECT 0", "OK")
	c.begins("SELECT 1", "-ERR DB index is out of range")
	c.is("CLIENT SETNAME worker-7", "OK")
	c.is("CLIENT SETINFO LIB-NAME redis-py", "OK")
	c.is("CLIENT ID", "1")
	p.connect(t).is("CLIENT ID", "2")
	c.begins("CLIENT KILL", "-ERR unknown subcommand 'KILL'")
	if text := c.do("INFO"); !strings.Contains(text, "loading:0\r\n") || !strings.Contains(text, "redis_version:7.0.0\r\n") {
		t.Errorf("INFO: %q", text)
	}
	c.is("HELLO", "[server sash version 7.0.0 proto 2 id 1 mode standalone role master modules []]")
	c.is("HELLO 3 SETNAME other", "{server:sash version:7.0.0 proto:3 id:1 mode:standalone role:master modules:[]}")
	c.is("HELLO", "{server:sash version:7.0.0 proto:3 id:1 mode:standalone role:master modules:[]}")
	c.is("HELLO 4", "-NOPROTO unsupported protocol version")
	c.begins("HELLO 3 SET", "-ERR Syntax error in HELLO option 'SET'")
	c.begins("GET key", "-ERR unknown command 'GET'")
	c.is("ECHO", "-ERR wrong number of arguments for 'echo' command")
	c.is("AUTH anything", "OK") // as the other ports ignore a token without a file of callers
	c.begins("CL.THROTTLE key 15 30 60", "-NOPERM not allowed: no caller may set a limit in a request: start sash serve with --access FILE")
	c.is("QUIT", "OK")
	if text, err := readReply(c.in); err == nil {
		t.Errorf("after QUIT: %q", text)
	}
}

const token = "0123456789abcdef"

// sumOfToken is its SHA-256.
const sumOfToken = "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f"

const listed = "clients: [{name: billing, tokens: [" + sumOfToken + "], allow: [decide], domains: [shop]}]\n"

func TestTokensHaveRights(t *testing.T) {
	p := open(t, listed)
	c := p.connect(t)
	c.is("PING", "PONG") // health checks have no token
	c.begins("SASH.ALLOW shop ENTRY user 42", "-NOAUTH Authentication required.")
	for _, wrong := range []string{"AUTH wrong", "AUTH default wrong", "AUTH other " + token, "HELLO 3 AUTH default wrong"} {
		c.is(wrong, "-WRONGPASS invalid username-password pair or user is disabled.")
		c.begins("SASH.ALLOW shop ENTRY user 42", "-NOAUTH Authentication required.")
	}
	c.send(encode("HELLO", "3", "AUTH", "", "")) // most likely variables that a program did not set
	c.gets("-WRONGPASS ")
	c.is("AUTH "+token, "OK")
	c.begins("SASH.ALLOW shop ENTRY user 42", "[allowed 1 ")
	c.begins("SASH.ALLOW other ENTRY user 42", `-NOPERM not allowed: the client billing may not ask for decisions in the domain "other"`)
	c.begins("SASH.ALLOW key LIMIT 25/5s", "-NOPERM not allowed: the client billing may not")
	c.begins("CL.THROTTLE key 15 30 60", "-NOPERM not allowed: the client billing may not")
	c.is("AUTH billing "+token, "OK")
	c.begins("SASH.ALLOW shop ENTRY user 42", "[allowed 1 ")
	other := p.connect(t)
	other.begins("HELLO 3 AUTH default "+token+" SETNAME me", "{server:sash ")
	other.begins("SASH.ALLOW shop ENTRY user 42", "{allowed:1 ")
}

// A connection has ten wrong tokens, however they come, and a right one in between does not begin the count anew. The right
// one works on the next connection.
func TestAConnectionWithWrongTokensEnds(t *testing.T) {
	p := open(t, listed)
	c := p.connect(t)
	for range 4 {
		c.begins("AUTH wrong", "-WRONGPASS ")
		c.begins("HELLO 3 AUTH default wrong", "-WRONGPASS ")
	}
	c.is("AUTH "+token, "OK")
	c.send(strings.Repeat(encode("AUTH", "wrong"), 5))
	c.gets("-WRONGPASS ", "-WRONGPASS ")
	if text, err := readReply(c.in); err == nil {
		t.Errorf("after ten wrong tokens: %q", text)
	}
	p.connect(t).is("AUTH "+token, "OK")
}

// Whoever makes up keys has them kept for a day at most, without the right to more.
func TestWindowsThatCommandsBringAlongEndAtADay(t *testing.T) {
	const short, long = `anonymous: {allow: {"(request)": [decide, override]}}`, `anonymous: {allow: {"(request)": [decide, override, long_windows]}}`
	c, may := open(t, short).connect(t), open(t, long).connect(t)
	for command, within := range map[string]bool{
		"CL.THROTTLE key 0 1 86400": true, "CL.THROTTLE key 0 1 86401": false, "CL.THROTTLE key 0 1 34560000": false, "CL.THROTTLE key 30 30 86400": false,
		"SASH.ALLOW key LIMIT 1/24h": true, "SASH.ALLOW key LIMIT 1/day@UTC": true, "SASH.ALLOW key LIMIT 1/month@UTC": false,
		"SASH.PEEK key LIMIT 1/1m LIMIT 1/25h": false, "SASH.BOOK key LIMIT 1/25h WITHIN 1": false, "SASH.RESERVE key LIMIT 1/25h": false,
	} {
		if got := c.do(command); strings.HasPrefix(got, "[") != within {
			t.Errorf("%s: %s", command, got)
		} else if !within && !strings.Contains(got, "callers without a token may not set a limit with a window of more than a day") {
			t.Errorf("%s: %s", command, got)
		}
		may.begins(command, "[")
	}
}

// A command that is being decided when the port stops is answered, and so is a pipeline that has come. Then the port ends,
// because nothing more comes.
func TestCommandsInFlightAreAnswered(t *testing.T) {
	p, g := openGate(t, 2, 30*time.Second)
	c, idle := p.connect(t), p.connect(t)
	idle.is("PING", "PONG")
	c.send(encode("SASH.ALLOW", "shop", "ENTRY", "user", "42"))
	servertest.Wait(t, "the command is not decided", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.waiting == 1
	})
	p.stop()
	servertest.Wait(t, "the port does not stop", func() bool { return p.refuses(t) })
	idle.is("PING", "PONG") // a connection that is not silent stays for a while
	close(g.open)
	c.gets("[allowed 1")
	for _, c := range []*peer{c, idle} {
		if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
	}
	servertest.Check(t, <-p.served)
}

func (p *port) refuses(t *testing.T) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", p.addr)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

// A client of Redis connects over TLS, with RESP2 and with RESP3, and a client in plain text does not.
func TestOverTLS(t *testing.T) {
	decider := servertest.Decider(t, memstore.New(nil), rules)
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	p := &port{}
	p.listen(t, Server{TLS: &tls.Config{Certificates: certified.TLS.Certificates}}, New(decider, &Options{Access: servertest.Gate(t, listed)}))
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{
			Addr: p.addr, Protocol: protocol, Username: "billing", Password: token, ClientName: "till",
			TLSConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"},
		})
		ctx := context.Background()
		servertest.Check(t, client.Ping(ctx).Err())
		got := servertest.Must(client.Do(ctx, "SASH.ALLOW", "shop", "ENTRY", "user", protocol).Result())(t)
		switch reply := got.(type) {
		case []any:
			if protocol != 2 || reply[0] != "allowed" || reply[1] != int64(1) {
				t.Errorf("RESP%d: %v", protocol, reply)
			}
		case map[any]any:
			if protocol != 3 || reply["allowed"] != int64(1) || reply["retry_after"] != 0.0 || reply["refused_by"] != nil {
				t.Errorf("RESP%d: %v", protocol, reply)
			}
		}
		if err := client.Do(ctx, "SASH.ALLOW", "other", "ENTRY", "user", 42).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM ") {
			t.Error(err)
		}
		servertest.Check(t, client.Close())
	}
	c := p.connect(t)
	c.send(encode("PING"))
	if text, err := readReply(c.in); err == nil && text == "PONG" {
		t.Error("a client in plain text got an answer")
	}
	servertest.Wait(t, "no word of it in the log", func() bool { return strings.Contains(p.log.String(), "the TLS handshake failed") })
}
