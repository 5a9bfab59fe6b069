package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

func (p *service) dial(t *testing.T) pb.RateLimitServiceClient {
	t.Helper()
	conn := servertest.Must(grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// descriptors returns a request for descriptors, each written "key=value key=value".
func descriptors(domain string, texts ...string) *pb.RateLimitRequest {
	req := &pb.RateLimitRequest{Domain: domain}
	for _, text := range texts {
		d := &common.RateLimitDescriptor{}
		for field := range strings.FieldsSeq(text) {
			key, value, _ := strings.Cut(field, "=")
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// asks returns a function that asks for descriptors, as Envoy does.
func (p *service) asks(t *testing.T, domain string) func(texts ...string) (*pb.RateLimitResponse, error) {
	client := p.dial(t)
	return func(texts ...string) (*pb.RateLimitResponse, error) {
		return client.ShouldRateLimit(t.Context(), descriptors(domain, texts...))
	}
}

// shows waits until a path of the admin port has a text.
func (p *service) shows(t *testing.T, path string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		servertest.Wait(t, path+" has no "+want, func() bool {
			_, text := get(t, p.admin+path)
			return strings.Contains(text, want)
		})
	}
}

const edge = `
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: generic_key
    value: login
    descriptors:
      - key: user
        rate_limit: {unit: day, requests_per_unit: LIMIT}
`

// envoysPorts are the variables of Envoy's service for ports that are free, and for a Redis.
func envoysPorts(redis *redistest.Server, more ...string) []string {
	return append([]string{"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr()}, more...)
}

// A deployment of Envoy's rate limit service, with its files and environment, changes only the image.
func TestInPlaceOfEnvoysService(t *testing.T) {
	redis := redistest.Start(t)
	root := t.TempDir()
	release := func(name, text string) {
		put(t, root+"/"+name+"/ratelimit/config/edge.yaml", text)
		servertest.Check(t, os.Symlink(name, root+"/new"))
		servertest.Check(t, os.Rename(root+"/new", root+"/current"))
	}
	release("one", strings.ReplaceAll(edge, "LIMIT", "2"))
	environment := envoysPorts(redis,
		"RUNTIME_ROOT="+root+"/current", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=true", "REDIS_TYPE=SINGLE", "CACHE_KEY_PREFIX=edge-limits:",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_RESET_HEADER=X-RateLimit-Reset", "PROMETHEUS_MAPPER_YAML=x.yaml", "LOG_LEVEL=INFO", "LOG_FORMAT=json")
	p, other := serveIn(t, environment, "--drain-delay", "0s"), serveIn(t, environment, "--drain-delay", "0s")
	first, second := p.asks(t, "edge"), other.asks(t, "edge")

	const ok, over = pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT
	call := func(ask func(...string) (*pb.RateLimitResponse, error), address, user string, code pb.RateLimitResponse_Code, remaining string) {
		t.Helper()
		descriptors := []string{"remote_address=" + address}
		if user != "" {
			descriptors = append(descriptors, "generic_key=login user="+user)
		}
		res, err := ask(descriptors...)
		header := make(map[string]string)
		for _, h := range res.GetResponseHeadersToAdd() {
			header[h.Key] = h.Value
		}
		if err != nil || res.OverallCode != code || header["RateLimit-Remaining"] != remaining || header["X-RateLimit-Reset"] == "" {
			t.Errorf("%s %s: %v, %v; want %v with %s left", address, user, res, err, code, remaining)
		}
	}
	call(first, "192.0.2.1", "", ok, "2")
	call(second, "192.0.2.1", "", ok, "1")
	call(first, "192.0.2.2", "ann", ok, "1")
	call(second, "192.0.2.2", "ann", ok, "0")
	call(first, "192.0.2.2", "ann", over, "0")
	call(first, "192.0.2.2", "", ok, "0") // the refusal did not charge the address
	if keys := fmt.Sprint(redis.Must(t, "KEYS", "*")); !strings.Contains(keys, "edge-limits:log3:") || strings.Contains(keys, "sash:") {
		t.Errorf("keys %s", keys)
	}

	release("two", strings.ReplaceAll(edge, "LIMIT", "4"))
	p.shows(t, "/rlconfig", "edge.generic_key_login.user: 4/1d")
	call(first, "192.0.2.3", "ann", ok, "1") // charges are kept
	release("three", "domain: edge\ndescriptors:\n- kei: x\n")
	p.shows(t, "/rlconfig", `unknown key "kei"`, "edge.generic_key_login.user: 4/1d")
	call(first, "192.0.2.3", "ann", ok, "0") // the last valid release decides

	p.shows(t, "/stats", "ratelimit.service.config_load_error: 1\n", "ratelimit.service.config_load_success: 2\n",
		"ratelimit.service.rate_limit.edge.generic_key_login.user.over_limit: 1\n")
	if status, text := get(t, p.url+"/healthcheck"); status != 200 || text != "OK" {
		t.Errorf("health: %d %s", status, text)
	}
	logs := p.stopped(t)
	if !strings.HasPrefix(logs, "{") || !strings.Contains(logs, "PROMETHEUS_MAPPER_YAML") {
		t.Errorf("logs: %s", logs)
	}
}

// An image is what the Dockerfile says: the variables, the entry point and its arguments.
func image(t *testing.T) (env, entry, args []string) {
	t.Helper()
	var err error
	for line := range strings.Lines(string(readFile(t, repository+"/Dockerfile"))) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "ENV":
			env = strings.Fields(rest)
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &entry)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &args)
		}
		servertest.Check(t, err)
	}
	if len(env) == 0 || len(entry) != 1 || len(args) == 0 {
		t.Fatalf("the Dockerfile has ENV %v, ENTRYPOINT %v, CMD %v", env, entry, args)
	}
	return env, entry, args
}

func ratelimit(t *testing.T) string {
	t.Helper()
	named := filepath.Join(t.TempDir(), "ratelimit")
	servertest.Check(t, os.Symlink(binary, named))
	return named
}

// The image of Envoy's service is replaced in a deployment that sets its variables and, as a container engine has it, its
// command as entry point or as arguments. The variables decide, and not what the image has by default. Without variables the
// image has its own defaults, and under the name of that service its defaults.
func TestTheImageReplacesEnvoys(t *testing.T) {
	file := tempFile(t, "rl/config/a.yaml", "domain: theirs\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	root := strings.TrimSuffix(file, "/rl/config/a.yaml")
	redis := redistest.Start(t)
	ours, _, args := image(t)
	for _, line := range [][]string{append([]string{binary}, args...), {ratelimit(t)}, {binary, "/bin/ratelimit"}} {
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Env = append(ours, envoysPorts(redis, "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=rl", "LOG_FORMAT=text", "LOG_LEVEL=info")...)
		p := run(t, cmd)
		if log := p.logs.String(); !strings.Contains(p.greets, filepath.Join(root, "rl", "config")+": domains theirs") || strings.HasPrefix(log, "{") {
			t.Errorf("%v: it serves %s and logs %s", line, p.greets, log)
		}
	}
	line := append(args, "--addr", "127.0.0.1:0")
	for want, line := range map[string][]string{
		"/etc/sash": line, "/srv/runtime_data/current/config": {"/bin/ratelimit"}, "/flag": append(line, "--config", "/flag"),
	} {
		if _, _, logs := sash(t, ours, line...); !strings.Contains(logs, want) {
			t.Errorf("%v: %q, want %s", line, logs, want)
		}
	}
}
