package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// rules are read by Envoy's own service, too: a limit that no client reaches, and a small one.
const rules = `domain: bench
descriptors:
  - {key: client, rate_limit: {unit: minute, requests_per_unit: 100000}}
  - {key: small, rate_limit: {unit: hour, requests_per_unit: 10}}
`

// original is the version of Envoy's rate limit service.
const original = "v1.4.1-0.20260122083618-3fb702589d36"

// A service is a running process.
type service struct {
	URL, GRPC string
	name      string
	cmd       *exec.Cmd
}

func (s *service) stop() {
	_ = s.cmd.Process.Signal(os.Interrupt)
	end := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	end.Stop()
}

func (b *bench) build(command string) string {
	binary := must(filepath.Abs(filepath.Join(b.dir, command)))
	out, err := exec.CommandContext(b.ctx, "go", "build", "-o", binary, "example.com/sash/service/cmd/"+command).CombinedOutput()
	check(err, "building "+command+": "+string(out))
	return binary
}

func serve(binary, config string, more ...string) *service {
	s := &service{name: "sash serve", cmd: exec.Command(binary, append([]string{"serve", "--json", "--config", config, "--log-level", "error",
		"--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, more...)...)}
	s.cmd.Env, s.cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, os.Stderr
	out := must(s.cmd.StdoutPipe())
	check(s.cmd.Start())
	check(json.NewDecoder(out).Decode(s), "sash serve did not start") // the addresses
	return s
}

func (b *bench) serveOriginal(dir, redis string) (*service, error) {
	binary := must(filepath.Abs(filepath.Join(b.dir, "service_cmd")))
	if _, err := os.Stat(binary); err != nil {
		b.say("installing Envoy's rate limit service")
		cmd := exec.CommandContext(b.ctx, "go", "install", "github.com/envoyproxy/ratelimit/src/service_cmd@"+original)
		cmd.Env = append(os.Environ(), "GOBIN="+filepath.Dir(binary), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
	}
	var ports [3]string // it does not say which ports it takes
	var taken [3]net.Listener
	for i := range ports {
		taken[i] = must(net.Listen("tcp", "127.0.0.1:0"))
		_, ports[i], _ = net.SplitHostPort(taken[i].Addr().String())
	}
	for _, l := range taken {
		_ = l.Close()
	}
	s := &service{URL: "http://127.0.0.1:" + ports[0], GRPC: "127.0.0.1:" + ports[1], name: "Envoy's rate limit service", cmd: exec.Command(binary)}
	s.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"HOST=127.0.0.1", "PORT=" + ports[0], "GRPC_HOST=127.0.0.1", "GRPC_PORT=" + ports[1], "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + ports[2],
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error",
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	client := http.Client{Timeout: time.Second}
	for range 200 {
		if res, err := client.Get(s.URL + "/healthcheck"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s is not healthy after ten seconds", s.name)
}

// overGRPC asks a service as a proxy does, over four connections.
func overGRPC(address, entry string) decide {
	var clients [4]pb.RateLimitServiceClient
	for i := range clients {
		conn := must(grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials())))
		clients[i] = pb.NewRateLimitServiceClient(conn)
	}
	var turn atomic.Uint64
	return func(ctx context.Context, key string) (bool, error) {
		of := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: entry, Value: key}}}
		req := &pb.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{of}}
		res, err := clients[turn.Add(1)%4].ShouldRateLimit(ctx, req)
		return res.GetOverallCode() == pb.RateLimitResponse_OK, err
	}
}

func overHTTP(url, entry string) decide {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}, Timeout: 10 * time.Second}
	return func(ctx context.Context, key string) (bool, error) {
		body := bytes.NewReader([]byte(`{"domain":"bench","entries":[{"key":"` + entry + `","value":"` + key + `"}]}`))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/allow", body)
		if err != nil {
			return false, err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			return false, err
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err = errors.Join(err, res.Body.Close()); err == nil && res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
			err = errors.New(res.Status)
		}
		return res.StatusCode == http.StatusOK, err
	}
}

func (b *bench) service() {
	s := startRedis()
	defer s.Stop()
	binary := b.build("sash")
	config := filepath.Join(filepath.Dir(binary), "ratelimit", "config")
	check(errors.Join(os.MkdirAll(config, 0o755), os.WriteFile(filepath.Join(config, "rules.yaml"), []byte(rules), 0o644)))
	ours := serve(binary, config, "--redis", "redis://"+s.Addr(), "--budget", "1s")
	defer ours.stop()
	memory := serve(binary, config)
	defer memory.stop()
	theirs, err := b.serveOriginal(filepath.Dir(binary), s.Addr())
	versions := []string{s.version}
	if err == nil {
		defer theirs.stop()
		versions = append(versions, "envoyproxy/ratelimit "+original)
	} else {
		b.say("not measured: %v", err)
		versions = append(versions, "without Envoy's service")
	}
	for i, w := range []workload{
		{name: "service: many keys, 64 calls in flight", keys: 1000, callers: 64},
		{name: "service: one key over its limit, 64 calls in flight", keys: 1, callers: 64, refused: true},
	} {
		b.say("%s", w.name)
		entry := "client"
		if w.refused {
			entry = "small"
		}
		all := []contender{
			b.inProcess("sash serve on Redis, gRPC", overGRPC(ours.GRPC, entry)),
			b.inProcess("sash serve on Redis, HTTP", overHTTP(ours.URL, entry)),
			b.inProcess("sash serve in memory, gRPC", overGRPC(memory.GRPC, entry)),
		}
		processes := []*service{ours, ours, memory, theirs}
		if theirs != nil {
			all = append(all, b.inProcess("Envoy's rate limit service, gRPC", overGRPC(theirs.GRPC, entry)))
		}
		t := table{name: w.name, head: []string{"service", "decisions/s", "p99 µs", "µs of service and Redis a decision"}}
		if i == 0 {
			t.versions = versions
		}
		used := func(i int) float64 { return processorOf(processes[i].cmd.Process.Pid) + s.processor() }
		for i, f := range b.measure(w, all, used, s.flush) {
			t.row(all[i].name, f.perSecond, f.p99, f.used)
		}
		b.tables = append(b.tables, t)
	}
}

// logs measures sash-logs beside GoAccess, on a made log in the combined format.
func (b *bench) logs() {
	lines := 1_000_000
	if b.rounds == 1 {
		lines = 10_000
	}
	path := must(filepath.Abs(filepath.Join(b.dir, "access.log")))
	makeLog(path, lines)
	binary := b.build("sash-logs")
	commands := [][]string{
		{"sash-logs replay", binary, "replay", "--try", "60/1m", "--try", "20/1s,600/1m", path},
		{"sash-logs suggest", binary, "suggest", path},
		{"GoAccess", "goaccess", path, "--log-format=COMBINED", "--no-progress", "--no-parsing-spinner", "-o", filepath.Join(b.dir, "report.html")},
	}
	t := table{name: "an access log", versions: []string{fmt.Sprintf("%d lines", lines)}, head: []string{"command", "seconds", "processor seconds", "MB"}}
	if version, err := exec.Command("goaccess", "--version").Output(); err != nil {
		b.say("not measured: GoAccess: %v", err)
		commands = commands[:2]
	} else {
		first, _, _ := strings.Cut(string(version), "\n")
		t.versions = append(t.versions, strings.TrimSuffix(first, "."))
	}
	wall, cpu, memory := make([]figure, len(commands)), make([]figure, len(commands)), make([]figure, len(commands))
	b.alternate(len(commands), func(i int) {
		b.say("%s", commands[i][0])
		cmd := exec.CommandContext(b.ctx, commands[i][1], commands[i][2:]...)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		check(err, commands[i][0]+": "+string(out))
		used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		wall[i] = append(wall[i], time.Since(began).Seconds())
		cpu[i] = append(cpu[i], (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
		memory[i] = append(memory[i], float64(used.Maxrss)/1000)
	})
	for i, c := range commands {
		t.row(c[0], wall[i], cpu[i], memory[i])
	}
	b.tables = append(b.tables, t)
}

// makeLog writes a log of a day: clients by a Zipf distribution, on 500 paths.
func makeLog(path string, lines int) {
	f := must(os.Create(path))
	defer f.Close()
	random := rand.New(rand.NewPCG(1, 2))
	clients, paths := rand.NewZipf(random, 1.2, 10, 99_999), rand.NewZipf(random, 1.3, 5, 499)
	w := bufio.NewWriter(f)
	at := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	for range lines {
		c := clients.Uint64()
		at = at.Add(time.Duration(random.ExpFloat64() * float64(24*time.Hour) / float64(lines)))
		fmt.Fprintf(w, "10.%d.%d.%d - - [%s] \"GET /page/%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0\"\n",
			c>>16, c>>8&255, c&255, at.Format("02/Jan/2006:15:04:05 -0700"), paths.Uint64(), 200+random.IntN(20_000))
	}
	check(w.Flush())
}
