package callers_test

import (
	"errors"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/goredisstore"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// classify is what an error of Redis means to a failover store.
func classify(err error) failover.Kind {
	switch {
	case !redisstore.Uncharged(err):
		return failover.Unknown
	case redisstore.Misconfigured(err):
		return failover.Misconfigured
	}
	return failover.Unsent
}

// With the defaults of both, on a server that looks often enough, too few replicas are reported as such and not as a
// late answer.
func TestAShortfallOfReplicasIsReportedWithinTheBudget(t *testing.T) {
	server := startLive(t, "--hz", "100") // how often an idle server looks for what has waited long enough
	client := newClient(server.Addr())
	defer client.Close()
	store, err := failover.New(goredisstore.New(client, &redisstore.Options{Replicas: 1}), nil)
	if err != nil {
		t.Fatal(err)
	}
	limiter := newLimiter(t, store, nil, sash.PerHour(1000))
	for range 3 { // the first makes the connection
		_, err = limiter.Allow(t.Context(), "k")
	}
	if errors.Is(err, failover.ErrBudget) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Error(err)
	}
}

// A WAIT that is not permitted fails after the charge: what this process admits then is not charged again.
func TestACallIsChargedOnceWhenWaitIsNotPermitted(t *testing.T) {
	server := startLive(t)
	server.Must(t, "ACL", "SETUSER", "default", "-wait")
	client := newClient(server.Addr())
	defer client.Close()
	store, err := failover.New(goredisstore.New(client, &redisstore.Options{Replicas: 1}), &failover.Options{
		Modes: failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}}, Local: memstore.New(nil), Classify: classify,
	})
	if err != nil {
		t.Fatal(err)
	}
	limiter := newLimiter(t, store, nil, sash.PerHour(1000))
	const calls = 3 // fewer than take the store down
	for range calls {
		if res, err := limiter.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if stats := store.Stats(); stats.Backlog != 0 || stats.Doubtful != calls {
		t.Errorf("after %d calls that were charged: %+v", calls, stats)
	}
	look := newLimiter(t, server.store, nil, sash.PerHour(1000))
	if res, err := look.Peek(t.Context(), "k"); err != nil || res.Remaining != 1000-calls {
		t.Errorf("%+v, %v after %d calls", res, err, calls)
	}
}
