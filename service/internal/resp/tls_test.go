package resp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
)

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
		if err := client.Ping(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := client.Do(ctx, "SASH.ALLOW", "shop", "ENTRY", "user", protocol).Result()
		if err != nil {
			t.Fatal(err)
		}
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
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	c := p.connect(t)
	c.send(encode("PING"))
	if text, err := readReply(c.in); err == nil && text == "PONG" {
		t.Error("a client in plain text got an answer")
	}
	servertest.Wait(t, "no word of it in the log", func() bool { return strings.Contains(p.log.String(), "the TLS handshake failed") })
}
