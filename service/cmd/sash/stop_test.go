package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

var stops = flag.Int("stops", 1, "how many times TestStoppingUnderLoadLosesNoRequest stops a service of each kind")

// A request that a client has sent gets its answer, whatever the client sends when the service is stopped: over
// connections that it keeps, over a new one for each request, and over gRPC. The clients send nothing twice. Redis
// counts what the service decided, and the clients count the answers.
func TestStoppingUnderLoadLosesNoRequest(t *testing.T) {
	redis := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "limits.yaml")
	limits := "domain: d\ndescriptors:\n  - {key: k, limits: [1000000000/1h], algorithm: fixed-window}\n"
	put(t, file, limits)
	args := []string{"--config", file, "--redis", "redis://" + redis.Addr(), "--budget", "5s"}
	dir := t.TempDir()
	ca, caKey := certify(t, dir, "authority", nil, nil)
	certify(t, dir, "server", ca, caKey)
	secure := append([]string{"--tls-cert", dir + "/server.pem", "--tls-key", dir + "/server.key"}, args...)
	clients := map[string]struct {
		args []string
		send func(*load, *service)
	}{
		"kept":       {args, func(l *load, p *service) { l.clients(100, func(i int) { l.keeps(p, i) }) }},
		"kept TLS":   {secure, func(l *load, p *service) { l.clients(50, func(i int) { l.keeps(p, i) }) }},
		"new":        {args, func(l *load, p *service) { l.clients(20, func(int) { l.dials(p) }) }},
		"HTTP/2":     {secure, func(l *load, p *service) { l.clients(4, func(int) { l.streams(p) }) }},
		"gRPC":       {args, func(l *load, p *service) { l.clients(10, func(int) { l.calls(t, p, false) }) }},
		"gRPC, new,": {args, func(l *load, p *service) { l.clients(10, func(int) { l.calls(t, p, true) }) }},
	}
	for _, delay := range []string{"0s", "300ms"} {
		for name, kind := range clients {
			t.Run(name+" with a drain delay of "+delay, func(t *testing.T) {
				t.Parallel()
				for range *stops {
					key := fmt.Sprint(name, delay, time.Now().UnixNano())
					p := spawn(t, nil, append(slices.Clip(kind.args), "--drain-delay", delay)...)
					l := &load{key: key}
					kind.send(l, p)
					servertest.Wait(t, "fewer than 500 answers", func() bool { return l.answered.Load() >= 500 || l.failed.Load() != nil })
					err := p.stop(t)
					l.running.Wait()
					after := spawn(t, nil, args...)
					decided := after.used(t, key)
					_ = after.stop(t)
					t.Logf("%d sent, %d answered, %d decided", l.sent.Load(), l.answered.Load(), decided)
					failed := "nothing"
					if first := l.failed.Load(); first != nil {
						failed = (*first).Error()
					}
					if err != nil || failed != "nothing" || l.sent.Load() != l.answered.Load() || decided != l.answered.Load() {
						t.Errorf("lost %d of %d, decided %d; the first client failed with: %v; the service ended with: %v",
							l.sent.Load()-l.answered.Load(), l.sent.Load(), decided, failed, err)
					}
				}
			})
		}
	}
}

// used returns the units that the service's limit holds for a key.
func (p *service) used(t *testing.T, key string) int64 {
	t.Helper()
	res, err := http.Post(p.url+"/v1/peek", "application/json", strings.NewReader(fmt.Sprintf(question, key)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var o outcome
	if err := json.NewDecoder(res.Body).Decode(&o); err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	return 1_000_000_000 - o.Remaining
}

const question = `{"domain":"d","entries":[{"key":"k","value":%q}]}`

// A load is what clients send until the service refuses connections.
type load struct {
	key            string
	sent, answered atomic.Int64
	failed         atomic.Pointer[error] // the first
	running        sync.WaitGroup
}

func (l *load) clients(n int, one func(i int)) {
	for i := range n {
		l.running.Go(func() { one(i) })
	}
}

func (l *load) fail(err error) { l.failed.CompareAndSwap(nil, &err) }

// keeps sends requests over a connection that it keeps while the service does. Some clients pause in between.
func (l *load) keeps(p *service, i int) {
	var c *client
	for {
		if c == nil || c.closed() {
			c.hangUp()
			var err error
			if c, err = dial(p.url); err != nil {
				l.refused(err)
				return
			}
		}
		if !l.ask(c) {
			c.hangUp()
			return
		}
		if c.last {
			c.hangUp()
			c = nil
		}
		time.Sleep(time.Duration(i%10) * 10 * time.Millisecond)
	}
}

// dials sends each request over a connection of its own.
func (l *load) dials(p *service) {
	for {
		c, err := dial(p.url)
		if err != nil {
			l.refused(err)
			return
		}
		ok := l.ask(c)
		c.hangUp()
		if !ok {
			return
		}
	}
}

func (l *load) ask(c *client) bool {
	fresh := !c.used
	err := c.ask(fmt.Sprintf(question, l.key))
	if fresh && crossed(err) {
		return false
	}
	l.sent.Add(1)
	if err != nil {
		l.fail(err)
		return false
	}
	l.answered.Add(1)
	return true
}

// streams sends requests over HTTP/2, several at a time over one connection.
func (l *load) streams(p *service) {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 20 * time.Second}
	var all sync.WaitGroup
	defer all.Wait()
	for range 8 {
		all.Go(func() {
			for l.stream(&client, p) {
			}
		})
	}
}

// stream sends one request, and reports whether the service takes more. What crosses the end of the connection is not
// decided: Go's client sends it again, and is refused a connection.
func (l *load) stream(client *http.Client, p *service) bool {
	res, err := client.Post(p.url+"/v1/allow", "application/json", strings.NewReader(fmt.Sprintf(question, l.key)))
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return false
		}
		l.sent.Add(1)
		l.fail(err)
		return true
	}
	l.sent.Add(1)
	answer, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
		l.fail(fmt.Errorf("%s over %s: %q, %v", res.Status, res.Proto, answer, err))
		return true
	}
	l.answered.Add(1)
	return true
}

// crossed reports whether a client connected at the moment when the port closed: it is disconnected, and what it may have
// sent is not decided.
func crossed(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// refused records any end but a refused connection.
func (l *load) refused(err error) {
	if !errors.Is(err, syscall.ECONNREFUSED) && !crossed(err) {
		l.fail(err)
	}
}

// calls sends calls one after the other, over one connection or each over a new one.
func (l *load) calls(t *testing.T, p *service, fresh bool) {
	var conn *grpc.ClientConn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	for {
		if conn != nil && fresh {
			_ = conn.Close()
			conn = nil
		}
		if conn == nil {
			var err error
			conn, err = grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
			if err != nil {
				t.Error(err)
				return
			}
		}
		if !l.call(conn) {
			return
		}
	}
}

func (l *load) call(conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{
		Domain: "d", Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: l.key}},
		}},
	})
	if status.Code(err) == codes.Unavailable && (strings.Contains(err.Error(), "while dialing") || strings.Contains(err.Error(), "server preface")) {
		return false // not sent: before a call the client waits for what the server sends first
	}
	l.sent.Add(1)
	if err != nil {
		l.fail(err)
		return false
	}
	l.answered.Add(1)
	return true
}

// A client of HTTP keeps one connection, sends nothing twice, and looks before it sends, as curl does, whether the
// server has closed the connection.
type client struct {
	raw  *net.TCPConn
	conn net.Conn // over raw
	in   *bufio.Reader
	used bool // a request was answered
	last bool // the server has announced to close the connection
}

func dial(url string) (*client, error) {
	addr, secure := strings.CutPrefix(url, "https://")
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(addr, "http://"), 20*time.Second)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	c := &client{raw: conn.(*net.TCPConn), conn: conn}
	if secure {
		c.conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	c.in = bufio.NewReader(c.conn)
	return c, nil
}

func (c *client) ask(body string) error {
	_, err := fmt.Fprintf(c.conn, "POST /v1/allow HTTP/1.1\r\nHost: sash\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		return err
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	c.used = true
	if c.last = res.Close; err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return err
}

// closed reports whether the server has closed the connection. All answers have been read.
func (c *client) closed() bool {
	raw, err := c.raw.SyscallConn()
	if err != nil {
		return true
	}
	_ = raw.Control(func(fd uintptr) {
		_, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil // its end, or TLS's word of it
}

func (c *client) hangUp() {
	if c != nil {
		_ = c.conn.Close()
	}
}

// once sends one call over a connection of its own.
func (l *load) once(t *testing.T, p *service) {
	t.Helper()
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	l.call(conn)
}
