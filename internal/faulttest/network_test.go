package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// The network between the callers and the server drops or delays what passes. Every call has a subject of its own, so
// the server's keys show how often each call was charged.
func TestNetworkFaults(t *testing.T) {
	faults := []struct {
		name    string
		spoil   spoil
		answers bool // calls get through
	}{
		{"replies are late, and in time", spoil{"latency", false, map[string]int{"latency": 40, "jitter": 20}}, true},
		{"replies are too late", spoil{"latency", false, map[string]int{"latency": 800}}, false},
		{"replies are swallowed", spoil{"timeout", false, nil}, false},
		{"requests are swallowed", spoil{"timeout", true, nil}, false},
		{"replies drip", spoil{"slicer", false, map[string]int{"average_size": 7, "size_variation": 3, "delay": 40_000}}, false},
		{"connections are reset in place of a reply", spoil{"reset_peer", false, nil}, false},
		{"connections are reset while requests come", spoil{"reset_peer", true, nil}, false},
		{"connections break within a reply", spoil{"limit_data", false, map[string]int{"bytes": 21}}, false},
		{"connections break within a request", spoil{"limit_data", true, map[string]int{"bytes": 130}}, false},
	}
	each(t, func(t *testing.T, a adapter) {
		for _, fault := range faults {
			t.Run(fault.name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := through(t, server.Addr())
				limit := sash.Every(10, time.Hour)
				l := limiter(t, a.open(t, to(p.Listen, hurried)), limit)
				load := start(t, l, hurried, func(caller, i int) string { return fmt.Sprint(caller, ":", i) })
				for round := range 6 {
					more(t, "admissions before the fault", &load.admitted, 2*callers)
					failed, admitted, since := load.failed.Load(), load.admitted.Load(), time.Now()
					// All connections, or half of them: a client that asked again would get through.
					all := round%2 == 0
					p.add(t, fault.spoil, map[bool]float64{true: 1, false: 0.5}[all])
					await(t, "calls in the fault", func() bool {
						if fault.answers {
							return load.admitted.Load() >= admitted+2*callers
						}
						return load.failed.Load() >= failed+2 || !all && time.Since(since) > 3*hurried
					})
					p.heal(t)
				}
				more(t, "admissions after the fault", &load.admitted, 2*callers)
				all := load.stop()

				look := limiter(t, a.open(t, to(server.Addr(), hurried)), limit)
				lost := 0
				for _, c := range all {
					history{c}.charged(t, used(t, look, c.key))
					if c.err != nil {
						lost++
					} else if !c.Allowed {
						t.Errorf("%s asked once and was refused", c.key)
					}
				}
				all.log(t, "%d calls of the fault failed, none was charged twice", lost)
			})
		}
	})
}

// A proxy stands between two ends of a connection and can spoil what passes.
type proxy struct{ *toxiproxy.Proxy }

// through returns a proxy for the server at an address.
func through(t testing.TB, addr string) *proxy {
	t.Helper()
	p := &proxy{}
	for range 20 {
		// Below the ports of outgoing connections: no other process takes it between two runs of the proxy.
		if err := p.open(t, fmt.Sprintf("127.0.0.1:%d", 22_000+rand.IntN(10_000)), addr); err == nil {
			break
		}
	}
	if !p.Enabled {
		t.Fatal("no port is free for a proxy")
	}
	t.Cleanup(func() { p.Stop() })
	return p
}

// open starts to listen, with nothing spoiled.
func (p *proxy) open(t testing.TB, listen, upstream string) error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p.Proxy = toxiproxy.NewProxy(server, t.Name(), listen, upstream)
	return p.Start()
}

// A spoil is a fault of the network. Downstream is from the server to the client.
type spoil struct {
	kind       string
	upstream   bool
	attributes map[string]int
}

// add spoils some of the connections that there are and that come, each with the given probability.
func (p *proxy) add(t testing.TB, s spoil, probability float64) {
	t.Helper()
	direction := "downstream"
	if s.upstream {
		direction = "upstream"
	}
	text := must(json.Marshal(map[string]any{
		"name": s.kind + " " + direction, "type": s.kind, "stream": direction, "attributes": s.attributes, "toxicity": probability,
	}))(t)
	must(p.Toxics.AddToxicJson(strings.NewReader(string(text))))(t)
}

// heal spoils nothing any more. It ends all connections and begins anew: a toxiproxy that takes a spoil off a
// connection while an end of it leaves can wait forever.
func (p *proxy) heal(t testing.TB) {
	t.Helper()
	p.Stop()
	await(t, "the proxy listens again", func() bool { return p.open(t, p.Listen, p.Upstream) == nil })
}

// Connections fall silent without ending, as behind a firewall that forgot them; new ones work. Calls are decided again
// within 4 s, without a setting of the test's own.
func TestConnectionsFallSilent(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		for _, of := range []int{1, 2} {
			t.Run(fmt.Sprintf("one of %d", of), func(t *testing.T) {
				t.Parallel()
				r := newRelay(t)
				r.serve(redistest.Start(t).Addr())
				l := limiter(t, a.open(t, target{addrs: []string{r.addr()}}), sash.Every(100_000, time.Hour))
				if failed := decideTogether(t, l, never); failed > 0 { // until the machine is fast enough
					t.Logf("%d calls failed before", failed)
				}
				r.silence(of)
				since := time.Now()
				failed := decideTogether(t, l, 4*time.Second)
				t.Logf("%d calls failed until all callers were decided again, after %v", failed, time.Since(since).Round(time.Millisecond))
			})
		}
	})
}

// decideTogether calls from 8 goroutines, with 50 ms for each call, until each was decided 20 times in a row. It fails
// the test if that takes longer than patience. It returns the number of calls that failed.
func decideTogether(t *testing.T, l *sash.Limiter, patience time.Duration) int64 {
	t.Helper()
	end := time.Now().Add(patience)
	var failed, late atomic.Int64
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for inRow := 0; inRow < 20; {
				if time.Now().After(end) {
					late.Add(1)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, err := l.Allow(ctx, sash.Key("caller", fmt.Sprint(caller)))
				cancel()
				inRow++
				if err != nil {
					inRow = 0
					failed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := late.Load(); n > 0 {
		t.Errorf("%d of 8 callers are not decided again after %v; %d calls failed", n, patience, failed.Load())
	}
	return failed.Load()
}

// The error of a call without an answer names the server that is silent: the node of a Cluster that hangs, and no other node, or the end
// of a connection on which everything is swallowed. No other test runs beside it: the connections of a process are known together.
func TestASilentServerIsNamed(t *testing.T) {
	for _, a := range adapters {
		t.Run(a.name+", a node hangs", func(t *testing.T) {
			cluster := redistest.StartCluster(t, redistest.ClusterOptions{NodeTimeout: time.Minute})
			store := a.open(t, target{addrs: cluster.Addrs(), cluster: true})
			hanging := cluster.Primaries[1]
			err := firstFailure(t, store, subjectsOn(t, cluster, store, 1, 1)[0], hanging.Pause)
			hanging.Resume()
			if want := hanging.Addr() + " has not answered for "; !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			for _, node := range []int{0, 2} {
				if addr := cluster.Primaries[node].Addr(); strings.Contains(err.Error(), addr) {
					t.Errorf("%v, but %s works", err, addr)
				}
			}
		})
		t.Run(a.name+", a black hole", func(t *testing.T) {
			proxy := through(t, redistest.Start(t).Addr())
			err := firstFailure(t, a.open(t, to(proxy.Listen, 0)), "k", func() { proxy.add(t, spoil{"timeout", true, nil}, 1) })
			if want := proxy.Listen + " has not answered for "; !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// firstFailure returns the error of the first call through failover after a fault, which OnError has been given too.
func firstFailure(t *testing.T, store *redisstore.Store, key string, fault func()) error {
	t.Helper()
	var reported error
	guarded := must(failover.New(store, &failover.Options{
		OnError: func(err error, _ failover.Kind) { reported = err },
	}))(t)
	l := limiter(t, guarded, sash.PerHour(1000))
	await(t, "the store decides", func() bool { _, err := l.Allow(t.Context(), key); return err == nil })
	fault()
	_, err := l.Allow(t.Context(), key)
	if !errors.Is(err, failover.ErrBudget) || !errors.Is(err, reported) {
		t.Fatalf("%v; reported: %v", err, reported)
	}
	return err
}
