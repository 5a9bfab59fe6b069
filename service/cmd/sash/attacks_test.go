package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

var attackFor = flag.Duration("attacks", 0, "how long TestAttacks goes on, in rounds: 10m. Zero is one round")

const mostConnections = 1000 // of each port

// A siege is sash serve in a process of its own, with the memory of its systemd unit, TLS, tokens and Redis, and its attackers.
type siege struct {
	*service
	t            *testing.T
	redis        *redistest.Server
	http, resp   string // addresses
	authority    *authority
	sent, called atomic.Int64    // commands of pipelines, and calls with an answer
	round        context.Context // of attacks
	end          context.CancelFunc
	attackers    sync.WaitGroup
}

// attacks begin, and go on until the round ends. The bound that each reaches has a test in the package that has it.
var attacks = []func(*siege){
	func(s *siege) { s.halfRequests("") },
	func(s *siege) { s.halfRequests("greedy") },
	func(s *siege) { s.halfMessages(10, 40, "") },
	func(s *siege) { s.halfMessages(10, 40, "greedy") },
	func(s *siege) { s.halfMessages(1, 150, "greedy") }, // over one connection
	(*siege).connections,
	func(s *siege) { s.pipelines(64, "greedy", "SASH.ALLOW", "shop", "ENTRY", "user", "*") },
	func(s *siege) { s.calls(16, 8, "greedy") },
	func(s *siege) { s.pipelines(2, "maker", "CL.THROTTLE", "*", "0", "1", "34560000") }, // windows of 400 days
}

// Under all attacks at once the service stays within its memory, and a client that behaves gets its answers from the store. How
// soon depends on the machine, and is logged. Afterwards nothing of the attacks is left.
func TestAttacks(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "sash") // without the race detector, which takes memory
	if out, err := exec.Command("go", "build", "-o", plain, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := besiege(t, plain)
	for began := time.Now(); ; s.begins() {
		for _, begin := range attacks {
			begin(s)
		}
		servertest.Wait(t, "the last attackers have not begun", func() bool { return s.sent.Load() >= 5_000 && s.called.Load() >= 16*8 })
		s.counts(`sash_access_denied_total{reason="unauthenticated"}`, 10_000)
		s.holds()
		s.endsWithin(1024) // MiB: MemoryMax of the unit
		if time.Since(began) >= *attackFor {
			return
		}
	}
}

func besiege(t *testing.T, binary string) *siege {
	t.Helper()
	s := &siege{t: t, redis: redistest.Start(t), authority: certify(t, "sash.internal")}
	access := "clients:\n"
	for name, allow := range map[string]string{"good": "shop: [decide]", "greedy": "shop: [decide]", "maker": "'*': [decide, override]"} {
		access += fmt.Sprintf("  - {name: %s, tokens: [%x], allow: {%s}}\n", name, sha256.Sum256([]byte(name)), allow)
	}
	cmd := exec.Command(binary, slices.Concat([]string{"serve"}, freePorts, []string{"--resp-addr", "127.0.0.1:0", "--redis", s.redis.Addr(),
		"--budget", "2s", // so that the machine may be busy
		"--max-connections", strconv.Itoa(mostConnections),
		"--config", tempFile(t, "limits.yaml", "domain: shop\ndescriptors:\n  - {key: user, limits: [1000000/1m]}\n"),
		"--access", tempFile(t, "access.yaml", access),
		"--tls-cert", s.authority.file("sash.internal.pem"), "--tls-key", s.authority.file("sash.internal.key")})...)
	unit := readFile(t, examples+"/systemd/sash.service")
	for _, set := range regexp.MustCompile(`(?m)^Environment=(.+)`).FindAllSubmatch(unit, -1) {
		cmd.Env = append(cmd.Env, string(set[1]))
	}
	s.service = run(t, cmd)
	s.http = strings.TrimPrefix(s.url, "https://")
	s.resp = regexp.MustCompile(`  RESP +(\S+):`).FindStringSubmatch(s.greets)[1]
	s.begins()
	t.Cleanup(func() { s.end(); s.attackers.Wait() })
	return s
}

func (s *siege) begins() { s.round, s.end = context.WithCancel(s.t.Context()) }

func attacker(i int) *net.Dialer {
	return &net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%20))}}
}

// connect connects an attacker, which drops what comes. It returns nil where the service has ended the connection.
func (s *siege) connect(i int, addr string, protocols ...string) net.Conn {
	conn, err := (&tls.Dialer{NetDialer: attacker(i), Config: s.authority.client(s.t, "", protocols...)}).DialContext(s.round, "tcp", addr)
	if err != nil {
		return nil
	}
	context.AfterFunc(s.round, func() { _ = conn.Close() })
	s.attackers.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	return conn
}

// halfRequests begins 24,000 requests over HTTP/2, 100 over each connection, with a byte of a body that does not end.
func (s *siege) halfRequests(token string) {
	var header, text bytes.Buffer
	fields := hpack.NewEncoder(&header)
	for _, field := range []string{":method POST", ":scheme https", ":path /v1/allow", ":authority sash", "authorization Bearer " + token} {
		if name, value, _ := strings.Cut(field, " "); value != "Bearer " {
			_ = fields.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
	}
	text.WriteString(http2.ClientPreface)
	frames := http2.NewFramer(&text, nil)
	_ = frames.WriteSettings()
	for stream := uint32(1); stream < 200; stream += 2 {
		_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true})
		_ = frames.WriteData(stream, false, []byte("{"))
	}
	for i := range 240 {
		if conn := s.connect(i, s.http, "h2"); conn != nil {
			_, _ = conn.Write(text.Bytes())
		}
	}
}

// halfMessages begins calls over gRPC. Each sends one of four megabytes of its message, a stranger's
// until it has an answer.
func (s *siege) halfMessages(conns, calls int, token string) {
	url := "https://" + s.grpc + pb.RateLimitService_ShouldRateLimit_FullMethodName
	for i := range conns {
		transport := &http.Transport{DialContext: attacker(i).DialContext, TLSClientConfig: s.authority.client(s.t, ""),
			ForceAttemptHTTP2: true, MaxConnsPerHost: 1, IdleConnTimeout: time.Second}
		for range calls {
			s.attackers.Go(func() {
				for s.round.Err() == nil {
					body := io.MultiReader(bytes.NewReader(append([]byte{0, 0, 0x3f, 0, 0}, make([]byte, 1<<20)...)), endless{s.round})
					req, err := http.NewRequestWithContext(s.round, http.MethodPost, url, body)
					if err != nil {
						s.t.Error(err)
						return
					}
					req.Header = http.Header{"Content-Type": {"application/grpc"}}
					if token != "" {
						req.Header.Set("Authorization", "Bearer "+token)
					}
					if res, err := transport.RoundTrip(req); err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
						return
					}
					if token != "" {
						return // the service ends connections of a tenant that sends too much
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
	}
}

// An endless body has no more bytes and no end before that of its context.
type endless struct{ context.Context }

// Read waits for the end.
func (e endless) Read([]byte) (int, error) { <-e.Done(); return 0, e.Err() }

// connections connects from one address to HTTP and RESP, also when all their connections are in use.
func (s *siege) connections() {
	for _, addr := range []string{s.http, s.resp} {
		s.attackers.Go(func() {
			for i := 0; s.round.Err() == nil; i++ {
				if conn := s.connect(0, addr, "h2"); conn != nil && addr == s.http {
					_, _ = io.WriteString(conn, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and empty settings
				}
				if i > mostConnections {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
}

// pipelines sends 64 commands at a time over RESP, each with another key for the argument "*".
func (s *siege) pipelines(conns int, token string, args ...string) {
	text := respCommand("AUTH", token)
	for i := range 64 {
		one := slices.Clone(args)
		one[slices.Index(args, "*")] = fmt.Sprint("key ", i)
		text += respCommand(one...)
	}
	for range conns {
		s.attackers.Go(func() {
			conn := s.connect(0, s.resp)
			for conn != nil && s.round.Err() == nil {
				if _, err := io.WriteString(conn, text); err != nil {
					return
				}
				s.sent.Add(64)
			}
		})
	}
}

func respCommand(args ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	return text
}

// calls asks over gRPC, with a number of calls at once over each connection.
func (s *siege) calls(conns, atOnce int, token string) {
	ctx := metadata.AppendToOutgoingContext(s.round, "authorization", "Bearer "+token)
	for i := range conns {
		conn := servertest.Must(grpc.NewClient(s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(s.authority.client(s.t, ""))),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return attacker(i).DialContext(ctx, "tcp", addr)
			})))(s.t)
		context.AfterFunc(s.round, func() { _ = conn.Close() })
		for k := range atOnce {
			s.attackers.Go(func() {
				for ctx.Err() == nil {
					if _, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, descriptors("shop", fmt.Sprint("user=", i, "-", k))); err == nil {
						s.called.Add(1)
					}
				}
			})
		}
	}
}

// holds expects that a client which behaves gets its answers. It has a process of its own, where attackers do not delay it.
func (s *siege) holds() {
	s.t.Helper()
	client := exec.CommandContext(s.t.Context(), binary)
	client.Args = []string{"behave", s.url + "/v1/allow", s.authority.file("authority.pem")}
	out, err := client.CombinedOutput()
	if s.t.Logf("%s", out); err != nil {
		s.t.Error(err)
	}
}

// behave asks over HTTP, every tenth time over a new connection, and prints what it got.
func behave(url, authority string) error {
	text, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}, Timeout: 20 * time.Second}
	var took []time.Duration
	good, ask := 0, subject("shop", "user", "good")
	for i := range 100 {
		if i%10 == 9 {
			client.CloseIdleConnections()
		}
		began, said := time.Now(), ""
		for range 2 { // a client tries again where its connection was ended before it had an answer
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(ask))
			if err != nil {
				return err
			}
			req.Header = http.Header{"Authorization": {"Bearer good"}, "Content-Type": {"application/json"}}
			res, err := client.Do(req)
			if err != nil {
				fmt.Printf("after %v: %v\n", time.Since(began), err)
				continue
			}
			text, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			said = string(text)
			break
		}
		took = append(took, time.Since(began))
		if strings.Contains(said, `"allowed":true`) && strings.Contains(said, `"source":"store"`) {
			good++
		} else {
			fmt.Printf("after %v: %s\n", took[i], said)
		}
	}
	slices.Sort(took)
	fmt.Printf("%d of 100 answers came from the store, half within %v, 99 within %v\n", good, took[50], took[98])
	if good < 99 {
		return errors.New("those are too few")
	}
	return nil
}

// endsWithin ends the round, and expects that the process never had more memory, and that nothing is left of the attackers.
func (s *siege) endsWithin(mib int) {
	s.t.Helper()
	status := readFile(s.t, fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	kib, err := strconv.Atoi(string(regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)[1]))
	if s.t.Logf("the process had %d MiB", kib>>10); err != nil || kib>>10 > mib {
		s.t.Errorf("more than %d MiB, %v", mib, err)
	}
	s.end()
	s.attackers.Wait()
	servertest.Wait(s.t, "goroutines are left", func() bool { return s.metric("go_goroutines") < 300 })
}

func (s *siege) counts(series string, least float64) {
	s.t.Helper()
	servertest.Wait(s.t, fmt.Sprintf("%s is not %v", series, least), func() bool { return s.metric(series) >= least })
}

// metric returns a metric of the service, and no number where it has none or the machine is too busy to answer.
func (s *siege) metric(series string) float64 {
	n := math.NaN()
	if res, err := http.Get(s.admin + "/metrics"); err == nil {
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindSubmatch(text); found != nil {
			n, _ = strconv.ParseFloat(string(found[1]), 64)
		}
	}
	return n
}
