package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

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
				if failed := decideTogether(t, l, 10*time.Second); failed > 0 {
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
