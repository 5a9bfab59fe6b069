//go:build envoy

package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	library "example.com/sash"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

var (
	quotaTimes  = flag.Int("quota.times", 1, "how many times TestRealEnvoyQuota takes its time, and the units of its limit: 4 is 1,000 a minute")
	quotaRounds = flag.Int("quota.rounds", 1, "how many rounds TestRealEnvoyQuotaBesideCalls measures")
)

type quotaLog struct {
	upstream
	mu  sync.Mutex
	all []judge.Call // guarded by mu
}

func (q *quotaLog) within(from time.Time, long time.Duration) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.all {
		if since := c.At.Sub(from); since >= 0 && since < long {
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
	return refit(t, config, func(all []any, _ map[string]any) []any { return append(parsed[[]any](t, filter), all[len(all)-1]) })
}

// Three Envoys that spend a limit by themselves never exceed it together, while demand swings from one to another and an Envoy, two
// instances of the service and Redis are killed, by the log of the upstream. Demand that is more than the limit gets nine tenths of it.
func TestRealEnvoyQuota(t *testing.T) {
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	log := startQuotaLog(t)
	limit := fmt.Sprintf("%d/%ds", 250**quotaTimes, 15**quotaTimes)
	policy := tempFile(t, "policy.yaml", "domain: web\ndescriptors:\n- {key: x-user, limits: ["+limit+"], lease: 2s}\n")
	code, filter, said := sash(t, nil, "config", "envoy", policy, "--quota")
	if code != 0 {
		t.Fatal(said)
	}
	launch := func(address string) *service {
		return spawn(t, nil, "--config", policy, "--redis", redis.Addr(), "--instances", "2", "--grpc-addr", address)
	}
	instances := []*service{launch("127.0.0.1:0"), launch("127.0.0.1:0")}
	config := quotaFilter(t, envoyConfig(t, &log.upstream, instances...), filter)
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
		long *= time.Duration(*quotaTimes)
		time.Sleep(long)
		t.Logf("%s %v: %d reached the upstream in %v", what, all, log.within(began, long), long)
	}
	demand("begin", 15*time.Second, 15, 15, 15)
	steady, long, window := time.Now(), 51*time.Second, time.Duration(15**quotaTimes)*time.Second
	demand("steady", long, 15, 15, 15)
	long *= time.Duration(*quotaTimes)
	room := float64(250**quotaTimes) * float64(long) / float64(window+2*time.Second)
	if n := float64(log.within(steady, long)); n < 0.9*room {
		t.Errorf("%.0f of %.0f requests were admitted that the limit has room for", n, room)
	}
	demand("swing", 12*time.Second, 60, 2, 2)
	demand("swing", 12*time.Second, 2, 60, 2)
	demand("swing", 12*time.Second, 0, 0, 60)
	envoys[2].Load().process.stop()
	demand("an Envoy is gone", 6*time.Second, 30, 10, 10)
	envoys[2].Store(startEnvoy(t, config))
	demand("it is back", 12*time.Second, 10, 10, 40)
	servertest.Check(t, instances[0].cmd.Process.Kill())
	demand("an instance is gone", 12*time.Second, 30, 30, 30)
	servertest.Check(t, instances[1].cmd.Process.Kill())
	demand("both are gone", 4*time.Second, 30, 30, 30)
	for _, p := range instances {
		launch(p.grpc)
	}
	demand("they are back", 20*time.Second, 30, 30, 30)
	redis.Stop()
	demand("Redis is gone", 6*time.Second, 30, 30, 30)
	redis.Restart()
	back := time.Now()
	demand("it is back", 20*time.Second, 30, 30, 30)
	close(done)
	together.Wait()
	if log.within(back, time.Hour) == 0 {
		t.Error("nothing was admitted afterwards")
	}
	most := 0
	for _, c := range log.all {
		most = max(most, log.within(c.At, window))
	}
	t.Logf("%d reached the upstream, at most %d in a window of %v", len(log.all), most, window)
	servertest.Check(t, judge.CheckHistory([]library.Limit{servertest.Must(library.ParseLimit(limit))(t)}, log.all))
}

// A meter is a way to the service, which counts messages, which are frames of data, and bytes, to the service and from it.
type meter [4]atomic.Int64

func (m *meter) start(t *testing.T, service string) string {
	listener := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	pass := func(which int, to, from net.Conn) {
		defer to.Close()
		head := make([]byte, 9)
		for _, err := io.ReadFull(from, head); err == nil; _, err = io.ReadFull(from, head) {
			size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
			if m[which+1].Add(9 + size); head[3] == 0 && size > 0 {
				m[which].Add(1)
			}
			_, _ = io.CopyN(to, io.MultiReader(bytes.NewReader(head), from), 9+size)
		}
	}
	go func() {
		for near, err := listener.Accept(); err == nil; near, err = listener.Accept() {
			if far, err := net.Dial("tcp", service); err == nil {
				go func() { _, _ = io.CopyN(far, near, 24); pass(0, far, near) }() // after the preface
				go pass(2, near, far)
			}
		}
	}()
	return portOf(listener.Addr().String())
}

// A request that Envoy decides with quota is faster than one that waits for a call, and sends less to the service: in rounds that
// take turns, 200 requests a second of four clients.
func TestRealEnvoyQuotaBesideCalls(t *testing.T) {
	log := startUpstream(t)
	policy := tempFile(t, "policy.yaml", "domain: web\ndescriptors:\n- {key: x-user, limits: [1000000/1m], lease: 2s}\n")
	p := spawn(t, nil, "--config", policy, "--redis", redistest.Start(t).Addr(), "--budget", patience)
	_, filter, _ := sash(t, nil, "config", "envoy", policy, "--quota")
	ways := [2]struct {
		name string
		meter
		sent [4]float64 // of its rounds
		*realEnvoy
		p50, p99 []time.Duration
		denied   atomic.Int64
	}{{name: "calls"}, {name: "quota"}}
	for i := range ways {
		config := envoyConfig(t, log, &service{grpc: "127.0.0.1:" + ways[i].start(t, p.grpc)})
		if i == 0 {
			config = withFilter(t, config, denying+"domain: web\nrate_limits: [{actions: [{request_headers: {header_name: x-user, descriptor_key: x-user}}]}]")
		} else {
			config = quotaFilter(t, config, filter)
		}
		ways[i].realEnvoy = startEnvoy(t, edited(t, config, "interval: 1s", "interval: 3600s")) // of health checks
	}
	const each, pause = 250, 20 * time.Millisecond
	for round := range 1 + *quotaRounds { // the first one warms up
		for i := range ways {
			w := &ways[i]
			var before [4]int64
			for c := range before {
				before[c] = w.meter[c].Load()
			}
			var took [4][each]time.Duration
			var together sync.WaitGroup
			for client := range took {
				together.Go(func() {
					for n, next := 0, time.NewTicker(pause); n < each; n++ {
						<-next.C
						began := time.Now()
						res := w.get(client, "x-user", "1")
						if took[client][n] = time.Since(began); res.StatusCode != http.StatusOK && round > 0 {
							w.denied.Add(1)
						}
					}
				})
			}
			together.Wait()
			if round > 0 {
				all := slices.Sorted(slices.Values(slices.Concat(took[0][:], took[1][:], took[2][:], took[3][:])))
				w.p50, w.p99 = append(w.p50, all[len(all)/2]), append(w.p99, all[len(all)*99/100])
				for c := range before {
					w.sent[c] += float64(w.meter[c].Load()-before[c]) / (each * pause.Seconds() * float64(*quotaRounds))
				}
			}
		}
	}
	for i := range ways {
		w := &ways[i]
		slices.Sort(w.p50)
		slices.Sort(w.p99)
		t.Logf("%s: medians %v; p99 %v; %.1f messages and bytes a second to the service, and from it; %d denied", w.name, w.p50, w.p99, w.sent, w.denied.Load())
	}
	if calls, quota := ways[0].sent[0], ways[1].sent[0]; quota*10 > calls {
		t.Errorf("quota sent %.1f messages a second, and calls %.1f", quota, calls)
	}
}
