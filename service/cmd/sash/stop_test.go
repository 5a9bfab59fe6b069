package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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
	file := tempFile(t, "limits.yaml", "domain: d\ndescriptors:\n  - {key: k, limits: [1000000000/1h], algorithm: fixed-window}\n")
	args := []string{"--config", file, "--redis", "redis://" + redistest.Start(t).Addr(), "--budget", "5s"}
	ca := certify(t, "server")
	secure := append([]string{"--tls-cert", ca.file("server.pem"), "--tls-key", ca.file("server.key")}, args...)
	for name, kind := range map[string]struct {
		args    []string
		clients int
		send    func(l *load, p *service, i int)
	}{
		"kept":       {args, 100, func(l *load, p *service, i int) { l.over1(p, i, false) }},
		"kept TLS":   {secure, 50, func(l *load, p *service, i int) { l.over1(p, i, false) }},
		"new":        {args, 20, func(l *load, p *service, _ int) { l.over1(p, 0, true) }},
		"HTTP/2":     {secure, 4, func(l *load, p *service, _ int) { l.over2(p) }},
		"gRPC":       {args, 10, func(l *load, p *service, _ int) { l.overGRPC(p, false) }},
		"gRPC, new,": {args, 10, func(l *load, p *service, _ int) { l.overGRPC(p, true) }},
	} {
		for _, delay := range []string{"0s", "300ms"} {
			t.Run(name+" with a drain delay of "+delay, func(t *testing.T) {
				t.Parallel()
				for range *stops {
					l := &load{key: fmt.Sprint("at-", time.Now().UnixNano())}
					p := spawn(t, nil, append(slices.Clip(kind.args), "--drain-delay", delay)...)
					for i := range kind.clients {
						l.running.Go(func() { kind.send(l, p, i) })
					}
					servertest.Wait(t, "fewer than 500 answers", func() bool { return l.answered.Load() >= 500 || l.failed.Load() != nil })
					err := p.stop(t)
					l.running.Wait()
					after := spawn(t, nil, args...)
					_, said := post(t, after.url+"/v1/peek", subject("d", "k", l.key))
					decided := 1_000_000_000 - int64(said["remaining"].(float64))
					if failed := l.failed.Load(); err != nil || failed != nil || l.sent.Load() != l.answered.Load() || decided != l.answered.Load() {
						t.Errorf("%d sent, %d answered, %d decided; the first client failed with: %v; the service ended with: %v",
							l.sent.Load(), l.answered.Load(), decided, failed, err)
					}
				}
			})
		}
	}
}

// A load is what clients send until the service refuses connections.
type load struct {
	key            string
	sent, answered atomic.Int64
	failed         atomic.Pointer[string] // the first
	running        sync.WaitGroup
}

// count counts a request that was sent, and reports whether it was answered.
func (l *load) count(err error) bool {
	l.sent.Add(1)
	if err == nil {
		l.answered.Add(1)
		return true
	}
	text := err.Error()
	l.failed.CompareAndSwap(nil, &text)
	return false
}

// over1 sends requests over HTTP/1.1, each over a connection of its own or all over one that it keeps while the service
// does. Some clients pause in between.
func (l *load) over1(p *service, i int, fresh bool) {
	var c *client
	defer func() { c.hangUp() }()
	for {
		if c == nil || fresh || c.last || c.closed() {
			c.hangUp()
			var err error
			if c, err = dial(p.url); err != nil {
				if !errors.Is(err, syscall.ECONNREFUSED) && !crossed(err) {
					l.count(err)
				}
				return
			}
		}
		first := !c.used
		if err := c.ask(subject("d", "k", l.key)); first && crossed(err) || !l.count(err) {
			return
		}
		time.Sleep(time.Duration(i%10) * 10 * time.Millisecond)
	}
}

// crossed reports whether a client connected at the moment when the port closed: it is disconnected, and what it may have
// sent is not decided.
func crossed(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// over2 sends requests over HTTP/2, several at a time over one connection. What crosses the end of the connection is not
// decided: Go's client sends it again, and is refused a connection.
func (l *load) over2(p *service) {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 20 * time.Second}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				res, err := client.Post(p.url+"/v1/allow", "application/json", strings.NewReader(subject("d", "k", l.key)))
				if errors.Is(err, syscall.ECONNREFUSED) {
					return
				}
				if err == nil {
					err = read(res)
				}
				if err == nil && res.ProtoMajor != 2 {
					err = errors.New(res.Proto)
				}
				l.count(err)
			}
		})
	}
	all.Wait()
}

// read reads an answer, which has to be 200.
func read(res *http.Response) error {
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return err
}

// overGRPC sends calls one after the other, over one connection or each over a new one.
func (l *load) overGRPC(p *service, fresh bool) {
	var conn *grpc.ClientConn
	for ok := true; ok; {
		if conn == nil || fresh {
			var err error
			if conn, err = grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry()); err != nil {
				l.count(err)
				return
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, descriptors("d", "k="+l.key))
		cancel()
		// Before a call the client waits for what the server sends first, so such a call was not sent.
		unsent := err != nil && status.Code(err) == codes.Unavailable &&
			(strings.Contains(err.Error(), "while dialing") || strings.Contains(err.Error(), "server preface"))
		ok = !unsent && l.count(err)
		if fresh || !ok {
			_ = conn.Close()
		}
	}
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
	c.used, c.last = true, res.Close
	return read(res)
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
