package modeltest

import (
	"errors"
	"fmt"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// plainRequests are requests on so many subjects, each under a limit of its own.
func plainRequests(t testing.TB, n int) (reqs []driver.Request) {
	t.Helper()
	for i := range n {
		policy := newPolicy(t, nil, sash.PerHour(int64(10+i)))
		reqs = append(reqs, driver.Request{Key: fmt.Sprint("subject ", i), Cost: 1, Policy: policy})
	}
	return reqs
}

// Where the server takes no charges, and where a user may not use every key, each request is sent back to be decided by
// itself: so it has its own answer or error.
func TestWhatTheServerRefusesIsDecidedAlone(t *testing.T) {
	for name, commands := range map[string][][]string{
		"replica":      {{"REPLICAOF", "127.0.0.1", "1"}},
		"memory":       {{"CONFIG", "SET", "maxmemory", "1"}},
		"key patterns": {{"ACL", "SETUSER", "default", "resetkeys", "~sash:log:subject?1"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			scripts := &scripter{client: newClient(server.Addr())}
			defer scripts.client.Close()
			store := redisstore.New(scripts, nil)
			reqs := plainRequests(t, 3)
			for _, command := range commands {
				server.Must(t, command...)
			}
			_, errs := store.DecideMany(t.Context(), reqs)
			for i := range reqs {
				if !errors.Is(errs[i], driver.ErrApart) {
					t.Errorf("subject %d: %v", i, errs[i])
				}
			}
			if _, ok := store.Gathers(&reqs[0]); !ok {
				t.Error("the store gathers no more")
			}
		})
	}
}

// What is no plain decision goes by itself.
func TestWhatDoesNotGoWithOthers(t *testing.T) {
	store := redisstore.New(&scripter{}, nil)
	confirmed := redisstore.New(&scripter{}, &redisstore.Options{Replicas: 1})
	plain := plainRequests(t, 1)[0]
	if _, ok := store.Gathers(&plain); !ok {
		t.Error("a plain decision goes by itself")
	}
	if _, ok := confirmed.Gathers(&plain); ok {
		t.Error("a decision that waits for replicas goes with others")
	}
	with := func(change func(*driver.Request, *driver.Policy)) driver.Request {
		req, policy := plain, *plain.Policy
		req.Policy = &policy
		change(&req, &policy)
		return req
	}
	for name, req := range map[string]driver.Request{
		"booking": with(func(r *driver.Request, _ *driver.Policy) { r.Within = 1 }),
		"partial": with(func(r *driver.Request, _ *driver.Policy) { r.Partial = true }),
		"forced":  with(func(r *driver.Request, _ *driver.Policy) { r.Forced = true }),
		"block":   with(func(_ *driver.Request, p *driver.Policy) { p.Block = driver.Block{Refusals: 1, Window: 1, Length: 1} }),
		"gcra":    with(func(_ *driver.Request, p *driver.Policy) { p.Algorithm = driver.GCRA }),
	} {
		if _, ok := store.Gathers(&req); ok {
			t.Errorf("%s: it goes with others", name)
		}
	}
}

// A cluster behind a client that does not look like one rejects keys of several slots: then calls go alone, all of them are
// decided, and no further round trip is tried in vain.
func TestACrossedSlotEndsGathering(t *testing.T) {
	server := redistest.StartCluster(t, redistest.ClusterOptions{Primaries: 1}).Primaries[0]
	scripts := &scripter{client: newClient(server.Addr())}
	defer scripts.client.Close()
	store := redisstore.New(scripts, nil)
	reqs := plainRequests(t, 4)
	_, errs := store.DecideMany(t.Context(), reqs)
	for i := range reqs {
		if !errors.Is(errs[i], driver.ErrApart) {
			t.Errorf("subject %d: %v", i, errs[i])
		}
	}
	if _, ok := store.Gathers(&reqs[0]); ok {
		t.Error("the store still gathers")
	}
}
