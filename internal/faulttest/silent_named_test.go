package faulttest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// The error of a call without an answer names the server that is silent: the node of a Cluster that hangs, and no other
// node, or the end of a connection on which everything is swallowed. No other test runs beside it: the connections of a
// process are known together.
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
	guarded, err := failover.New(store, &failover.Options{
		OnError: func(err error, _ failover.Kind) { reported = err },
	})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, guarded, sash.PerHour(1000))
	await(t, "the store decides", func() bool { _, err := l.Allow(t.Context(), key); return err == nil })
	fault()
	_, err = l.Allow(t.Context(), key)
	if !errors.Is(err, failover.ErrBudget) || !errors.Is(err, reported) {
		t.Fatalf("%v; reported: %v", err, reported)
	}
	return err
}
