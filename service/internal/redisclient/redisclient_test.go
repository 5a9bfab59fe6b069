package redisclient

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) { servertest.NoLeak(m) }

func TestURLs(t *testing.T) {
	for url, address := range map[string]string{
		"redis://localhost":                                    "localhost:6379",
		"redis://user:secret@cache:7000/3":                     "cache:7000",
		"rediss://cache:7000":                                  "cache:7000",
		"unix:///run/redis.sock?db=1":                          "/run/redis.sock",
		"127.0.0.1:6380":                                       "127.0.0.1:6380",
		"[::1]:6380":                                           "[::1]:6380",
		"redis://cache?read_timeout=3&db=2":                    "cache:6379",
		"redis://:p%40ss@cache:7000?protocol=2":                "cache:7000",
		"redis+sentinel://a:1,b,[::1]:3/main/2":                "main of sentinel a:1,b:26379,[::1]:3",
		"redis+sentinel://u:secret@a/main?sentinel_password=x": "main of sentinel a:26379",
		"rediss+sentinel://a/main":                             "main of sentinel a:26379",
		"redis+cluster://u:se%2Fcret@a:1,b":                    "cluster a:1,b:6379",
		"rediss+cluster://a/0":                                 "cluster a:6379",
	} {
		client, err := New(url)
		if err != nil || client.String() != address {
			t.Errorf("%s: address %v, error %v; want %q", url, client, err, address)
			continue
		}
		client.Close()
	}
}

func TestParametersAreThoseOfEveryForm(t *testing.T) {
	for _, url := range []string{"redis://u:secret@a:1/7?", "redis+sentinel://u:secret@a:1/main/7?sentinel_username=w&sentinel_password=other&", "redis+cluster://u:secret@a:1?"} {
		client := newClient(t, url+"dial_timeout=2s&read_timeout=3s&protocol=2&client_name=x&pool_size=5")
		defer client.Close()
		o := client.option
		if o.Dialer.Timeout != 2*time.Second || o.ConnWriteTimeout != 3*time.Second || !o.AlwaysRESP2 || o.ClientName != "x" || o.BlockingPoolSize != 5 {
			t.Errorf("%s: a parameter is lost: %+v", url, o)
		}
		if form := client.target.form; form == sentinel && (o.Sentinel.MasterSet != "main" || o.Sentinel.Username != "w" || o.Sentinel.Password != "other") {
			t.Errorf("%s: %+v", url, o.Sentinel)
		}
		if o.Username != "u" || o.Password != "secret" || client.Database() > 0 == client.Cluster() || client.Database() != o.SelectDB || len(o.InitAddress) != 1 || o.InitAddress[0] != "a:1" {
			t.Errorf("%s: %+v", url, o)
		}
	}
}

func TestErrorsSayTheFormsAndNeverThePassword(t *testing.T) {
	for _, url := range []string{
		"", "cache", "http://cache:6379", "redis://:secret@cache:port", "redis://:sec ret@cache:1", "redis://u:secret/x@cache:1",
		"u:secret@cache:6379:1", ":", "redis+sentinel://u:secret@a:1", "redis+sentinel://u:secret@a:b/main", "redis+ring://u:secret@a",
		"redis+cluster://u:secret@a:1/3", "redis+cluster://u:secret@a:1,,b:1", "unix+cluster://secret@a", "redis+sentinel://a/main?sentinel_password=secret&what=1",
		"redis://:secret@a/x", "redis://:secret@a?read_timeout=soon", "redis://:secret@a?pool_size=-1", "redis://", "unix://", "unix://host/x", "redis://a?skip_verify=true",
		"u:secret:cache:6379", "cache:secret", "secret:cache", "redis://cache/secret", "redis://cache?secret", "redis://cache:1?auth=secret",
		"unix:///u:secret@run/redis", "redis+sentinel://a/u:secret@main", "redis+sentinel://a/main/secret",
		"//u:secret@cache:1", "redis:u:secret@cache", "cache:6379,secret=x", "cache:6379 --secret", "cache:99999", "redis+cluster://a:1,b:65536",
	} {
		_, err := New(url)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "redis") {
			t.Errorf("%q: %v", url, err)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec ret") {
			t.Errorf("%q: the password is in %v", url, err)
		}
	}
}

func TestTLSFilesThatAreWrongAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty.pem")
	servertest.Check(t, os.WriteFile(file, nil, 0o600))
	for url, say := range map[string]string{
		"rediss://a?tls_ca=/no/such/file":                  "/no/such/file",
		"rediss://a?tls_ca=" + file:                        "no certificate in PEM",
		"rediss://a?tls_cert=" + file:                      "must be set together",
		"rediss://a?tls_cert=" + file + "&tls_key=" + file: "tls_cert and tls_key",
		"redis://a?tls_ca=" + file:                         "use rediss://",
		"redis+cluster://a,b?tls_cert=x&tls_key=" + file:   "use rediss://",
	} {
		if _, err := New(url); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want %q", url, err, say)
		}
	}
}

func newClient(t testing.TB, url string) *Client {
	t.Helper()
	return servertest.Must(New(url))(t)
}

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
	dir := servertest.Must(os.MkdirTemp("", "s"))(t) //nolint:usetesting // a socket's path may have 107 bytes, and names of tests are long
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "redis.sock")
	redistest.Start(t, "--unixsocket", socket)
	if err := ping(t, "unix://"+socket); err != nil {
		t.Error(err)
	}
}

// A proxy stands between a client and a server.
type proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	to    string     // guarded by mu: where new connections lead; empty ends them at once
	taken int        // guarded by mu: connections so far
	ends  []net.Conn // guarded by mu: of the connections that lead somewhere
}

func through(t *testing.T, to string) *proxy {
	t.Helper()
	l := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proxy{listener: l, to: to}
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		p.serve()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepting
		for _, end := range p.ends {
			_ = end.Close()
		}
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// lead has new connections lead elsewhere.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// connections returns how many there were.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.taken++
		to := p.to
		p.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.ends = append(p.ends, client, server)
		p.mu.Unlock()
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			p.work.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				_, _ = way[0].Close(), way[1].Close()
			})
		}
	}
}
