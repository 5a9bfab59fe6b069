//go:build envoy

package main

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	library "example.com/sash"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

const quotaRules = "domain: web\ndescriptors:\n- {key: x-user, limits: [300/15s], lease: 2s}\n"

// A quotaLog is the upstream's log.
type quotaLog struct {
	upstream
	mu  sync.Mutex
	all []judge.Call // guarded by mu
}

func (q *quotaLog) since(from time.Time) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.all {
		if c.At.After(from) {
			n++
		}
	}
	return n
}

func startQuotaLog(t *testing.T) *quotaLog {
	q := &quotaLog{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		q.mu.Lock()
		q.all = append(q.all, judge.Call{At: time.Now(), Cost: 1})
		q.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(server.Close)
	q.port = portOf(server.Listener.Addr().String())
	return q
}

// quotaFilter returns the configuration with the filter of quota in place of its rate limit filter.
func quotaFilter(t *testing.T, config, filter string) string {
	t.Helper()
	var root map[string]any
	servertest.Check(t, yaml.Unmarshal([]byte(config), &root))
	var wanted []any
	servertest.Check(t, yaml.Unmarshal([]byte(filter), &wanted))
	manager := at(root, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config").(map[string]any)
	all := list(manager, "http_filters")
	manager["http_filters"] = append(wanted, all[len(all)-1])
	return string(servertest.Must(yaml.Marshal(root))(t))
}

// Three Envoys that spend a limit by themselves never exceed it together, while demand swings from one to another and an Envoy, the
// service and Redis are killed, by the log of the upstream. Demand that is more than the limit gets nine tenths of it.
func TestRealEnvoyQuota(t *testing.T) {
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	log := startQuotaLog(t)
	policy := tempFile(t, "policy.yaml", quotaRules)
	code, filter, said := sash(t, nil, "config", "envoy", policy, "--quota")
	if code != 0 {
		t.Fatal(said)
	}
	listener := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	servertest.Check(t, listener.Close())
	launch := func() *service {
		return spawn(t, nil, "--config", policy, "--redis", redis.Addr(), "--instances", "1", "--grpc-addr", address)
	}
	p := launch()
	config := quotaFilter(t, envoyConfig(t, &log.upstream, p), filter)
	var envoys [3]atomic.Pointer[realEnvoy]
	for i := range envoys {
		envoys[i].Store(startEnvoy(t, config))
	}
	var rates [3]atomic.Int64 // requests a second
	done := make(chan struct{})
	var together sync.WaitGroup
	for i := range envoys {
		for client := range 4 {
			together.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(client)))
				for {
					pause := time.Duration(r.ExpFloat64() * 4 / float64(max(1, rates[i].Load())) * float64(time.Second))
					select {
					case <-time.After(min(pause, time.Second)):
					case <-done:
						return
					}
					if rates[i].Load() == 0 {
						continue
					}
					e := envoys[i].Load()
					req, _ := http.NewRequest(http.MethodGet, "http://"+e.address, nil)
					req.Header.Set("x-user", "1")
					if res, err := e.clients[client].Do(req); err == nil { // Envoy may be gone
						_, _ = io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
					}
				}
			})
		}
	}
	demand := func(what string, long time.Duration, all ...int64) {
		began := time.Now()
		for i, rate := range all {
			rates[i].Store(rate)
		}
		time.Sleep(long)
		t.Logf("%s %v: %d reached the upstream in %v", what, all, log.since(began), long)
	}
	demand("begin", 15*time.Second, 15, 15, 15)
	steady := time.Now()
	demand("steady", 51*time.Second, 15, 15, 15)
	arithmetic := 300 * 51 / 17
	if n := log.since(steady); n < arithmetic*9/10 {
		t.Errorf("%d of %d requests were admitted that the limit has room for", n, arithmetic)
	}
	demand("swing", 12*time.Second, 60, 2, 2)
	demand("swing", 12*time.Second, 2, 60, 2)
	demand("swing", 12*time.Second, 0, 0, 60)
	envoys[2].Load().process.stop()
	demand("an Envoy is gone", 6*time.Second, 30, 10, 10)
	envoys[2].Store(startEnvoy(t, config))
	demand("it is back", 12*time.Second, 10, 10, 40)
	servertest.Check(t, p.cmd.Process.Kill())
	demand("the service is gone", 4*time.Second, 30, 30, 30)
	launch()
	demand("it is back", 20*time.Second, 30, 30, 30)
	redis.Stop()
	demand("Redis is gone", 6*time.Second, 30, 30, 30)
	redis.Restart()
	back := time.Now()
	demand("it is back", 20*time.Second, 30, 30, 30)
	close(done)
	together.Wait()
	if log.since(back) == 0 {
		t.Error("nothing was admitted afterwards")
	}
	servertest.Check(t, judge.CheckHistory([]library.Limit{servertest.Must(library.ParseLimit("300/15s"))(t)}, log.all))
}
