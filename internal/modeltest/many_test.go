package modeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// A gathering store decides every request that it may between others, in one round trip.
type gathering struct {
	*redisstore.Store
	others []driver.Request
	seen   atomic.Int64 // requests that were decided so
}

func (g *gathering) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if _, ok := g.Gathers(&req); !ok {
		return g.Store.Decide(ctx, req)
	}
	place := int(g.seen.Add(1)) % (len(g.others) + 1)
	reqs := slices.Insert(slices.Clone(g.others), place, req)
	answers, errs := g.DecideMany(ctx, reqs)
	for i := range reqs {
		if reqs[i].Key == req.Key {
			return answers[i], errs[i]
		}
	}
	panic("unreachable")
}

// The whole suite holds for decisions that are made between those of other subjects, of which one holds something that is
// no log, one has other limits, and one a limit of the calendar.
func TestRedisConformsAmongOtherSubjects(t *testing.T) {
	server := redistest.Start(t)
	conforms(t, func(t testing.TB) (driver.Store, *judge.Clock) {
		server.Must(t, "FLUSHALL")
		store, clock, scripts := virtual(t, server.Addr(), nil)
		g := &gathering{Store: store}
		for i, l := range []sash.Limit{sash.PerHour(10), sash.PerSecond(2), sash.PerCalendar(5, sash.CalendarDay, time.UTC)} {
			policy := newPolicy(t, nil, l)
			g.others = append(g.others, driver.Request{Key: fmt.Sprint("another subject ", i), Cost: 1, Policy: policy})
		}
		bad := store.Key(g.others[0].Key, g.others[0].Policy)
		if err := scripts.client.LPush(t.Context(), bad, "x").Err(); err != nil {
			t.Fatal(err)
		}
		if err := scripts.client.PExpireAt(t.Context(), bad, start.AddDate(10, 0, 0)).Err(); err != nil {
			t.Fatal(err)
		}
		return g, clock
	}, sash.SlidingLog, sash.SlidingBuckets)
}

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
