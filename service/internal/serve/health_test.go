package serve

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/servertest"
)

// health returns what /healthz says.
func health(t *testing.T, at Listening) (h degrade.Health) {
	t.Helper()
	status, text := send(t, http.MethodGet, at.HTTP, "/healthz", "")
	if status != http.StatusOK || json.Unmarshal([]byte(text), &h) != nil {
		t.Fatalf("%d %s", status, text)
	}
	return h
}

// A Redis on which no call can be charged is not healthy, also one that answers questions, and also while nobody calls.
func TestHealthIsOkOnlyWhileDecisionsWork(t *testing.T) {
	for name, c := range map[string]struct {
		breaks, mends [][]string
		cause         string
		user          string
	}{
		"other keys":   {[][]string{{"ACL", "SETUSER", "limiter", "resetkeys", "~other:*"}}, [][]string{{"ACL", "SETUSER", "limiter", "resetkeys", "~*"}}, "auth", "limiter:secret@"},
		"no writes":    {[][]string{{"ACL", "SETUSER", "limiter", "-setrange", "-set"}}, [][]string{{"ACL", "SETUSER", "limiter", "+@all"}}, "misconfigured", "limiter:secret@"},
		"a replica":    {[][]string{{"REPLICAOF", "127.0.0.1", "1"}}, [][]string{{"REPLICAOF", "NO", "ONE"}}, "readonly", ""},
		"no memory":    {[][]string{{"CONFIG", "SET", "maxmemory", "1000"}}, [][]string{{"CONFIG", "SET", "maxmemory", "0"}}, "memory", ""},
		"few replicas": {[][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, [][]string{{"CONFIG", "SET", "min-replicas-to-write", "0"}}, "replicas", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			server.Must(t, "ACL", "SETUSER", "limiter", "on", ">secret", "~*", "+@all")
			at := running(t, Options{Redis: "redis://" + c.user + server.Addr(), Budget: time.Second})
			servertest.Wait(t, "it is not healthy", func() bool { return health(t, at).Status == "ok" })
			for _, command := range c.breaks {
				server.Must(t, command...)
			}
			began := time.Now()
			servertest.Wait(t, "it says ok, and cannot decide", func() bool { return health(t, at).Status == "degraded" })
			t.Logf("found after %v", time.Since(began))
			if h := health(t, at); h.Cause != c.cause || h.Store == "up" {
				t.Errorf("%+v, want the cause %s", h, c.cause)
			}
			if status := allow(t, at); status != http.StatusServiceUnavailable {
				t.Errorf("a decision is answered %d", status)
			}
			for _, command := range c.mends {
				server.Must(t, command...)
			}
			servertest.Wait(t, "it does not recover", func() bool { return health(t, at).Status == "ok" })
		})
	}
}

// Load balancers that ask for it send nothing while Redis does not answer, or without a configuration, over either protocol.
// The empty name says that the process serves.
func TestReadinessOverBothProtocols(t *testing.T) {
	redis := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "limits.yaml")
	at := running(t, Options{
		Config: config.Source{Path: path}, StartWithoutConfig: true, Redis: "redis://" + redis.Addr(), GRPC: "127.0.0.1:0",
		ReadyNeedsRedis: true, ReadyNeedsConfig: true,
	})
	conn, err := grpc.NewClient(at.GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	is := func(name string, want healthpb.HealthCheckResponse_ServingStatus) bool {
		res, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			t.Fatal(err)
		}
		return res.Status == want
	}
	check := func() int {
		status, _ := send(t, http.MethodGet, at.HTTP, "/healthcheck", "")
		return status
	}
	follow := func(when string, ready bool) {
		code, status := http.StatusInternalServerError, healthpb.HealthCheckResponse_NOT_SERVING
		if ready {
			code, status = http.StatusOK, healthpb.HealthCheckResponse_SERVING
		}
		servertest.Wait(t, when+": /healthcheck is another", func() bool { return check() == code })
		for _, name := range []string{"ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
			servertest.Wait(t, when+": the health of "+name+" is another", func() bool { return is(name, status) })
		}
		if !is("", healthpb.HealthCheckResponse_SERVING) {
			t.Errorf("%s: the process does not serve", when)
		}
	}
	follow("without a configuration", false)
	if err := os.WriteFile(path, []byte("domain: d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	follow("with a configuration", true)
	redis.Stop()
	follow("without Redis", false)
	redis.Restart()
	follow("with Redis again", true)
}
