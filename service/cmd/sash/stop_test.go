package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
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
	file := tempFile(t, "limits.yaml", "domain: d\ndescriptors:\n  - {key: k, limits: [1000000000/1h]}\n")
	args := []string{"--config", file, "--redis", "redis://" + redistest.Start(t).Addr(), "--budget", "5s"}
	ca := certify(t, "server")
	secure := append([]string{"--tls-cert", ca.file("server.pem"), "--tls-key", ca.file("server.key")}, args...)
	for name, kind := range map[string]struct {
		args    []string
		clients int
		send    func(l *load, p *service, i int)
	}{
		"kept":      {args, 100, func(l *load, p *service, i int) { l.overHTTP(p, 1, i, false) }},
		"kept TLS":  {secure, 50, func(l *load, p *service, i int) { l.overHTTP(p, 1, i, false) }},
		"new":       {args, 20, func(l *load, p *service, _ int) { l.overHTTP(p, 1, 0, true) }},
		"HTTP/2":    {secure, 4, func(l *load, p *service, _ int) { l.overHTTP(p, 8, 0, false) }},
		"gRPC":      {args, 10, func(l *load, p *service, _ int) { l.overGRPC(p, false) }},
		"gRPC, new": {args, 10, func(l *load, p *service, _ int) { l.overGRPC(p, true) }},
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
					failed := l.failed.Load()
					if err != nil || failed != nil || l.sent.Load() != l.answered.Load() ||
						decided != l.answered.Load() {
						t.Errorf("%d sent, %d answered, %d decided; the first client failed with: %s; the service ended with: %v",
							l.sent.Load(), l.answered.Load(), decided, *cmp.Or(failed, new(string)), err)
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

// overHTTP sends requests one after the other, each over a connection of its own or all over one that the client keeps
// while the service does. Some clients pause in between. Several share a connection of HTTP/2. What crosses the end of a
// connection is not decided: Go's client sends it again, and is refused a connection.
func (l *load) overHTTP(p *service, atOnce, i int, fresh bool) {
	transport := &http.Transport{DisableKeepAlives: fresh, ForceAttemptHTTP2: atOnce > 1,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 20 * time.Second}
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for ok := true; ok; ok = l.post(&client, p.url, atOnce > 1) {
				time.Sleep(time.Duration(i%10) * 10 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// post sends a request, and reports whether the service takes more.
func (l *load) post(client *http.Client, url string, http2 bool) bool {
	reused := false
	ctx := httptrace.WithClientTrace(context.Background(),
		&httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { reused = got.Reused }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/allow", strings.NewReader(subject("d", "k", l.key)))
	if err != nil {
		return l.count(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	// A client that connected at the moment when the port closed is disconnected, and what it may have sent is not decided.
	if errors.Is(err, syscall.ECONNREFUSED) || !reused && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
		return false
	}
	if err != nil {
		return l.count(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || (res.ProtoMajor == 2) != http2) {
		err = fmt.Errorf("%s over %s: %s", res.Status, res.Proto, text)
	}
	return l.count(err)
}

// overGRPC sends calls one after the other, over one connection or each over a new one.
func (l *load) overGRPC(p *service, fresh bool) {
	var conn *grpc.ClientConn
	for ok := true; ok; {
		if conn == nil || fresh {
			var err error
			conn, err = grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
			if err != nil {
				l.count(err)
				return
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, descriptors("d", "k="+l.key))
		cancel()
		// Before a call the client sends a preface and waits for the server's, so such a call was not sent.
		unsent := err != nil && status.Code(err) == codes.Unavailable &&
			(strings.Contains(err.Error(), "while dialing") || strings.Contains(err.Error(), " preface"))
		ok = !unsent && l.count(err)
		if fresh || !ok {
			_ = conn.Close()
		}
	}
}
