package modeltest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// A value of another program is rejected as fast as one of the store is decided on, even if it begins as that does.
func TestAValueOfAnotherProgramIsRejected(t *testing.T) {
	server := redistest.Start(t)
	store, _, scripts := virtual(t, server.Addr(), nil)
	policy := newPolicy(t, nil, sash.PerHour(10))
	fixed := newPolicy(t, &sash.Options{Algorithm: sash.FixedWindow}, sash.PerHour(10))
	set := newPolicy(t, &sash.Options{Algorithm: sash.SortedSetLog}, sash.PerHour(10))
	check := func(policy *driver.Policy, what any) {
		t.Helper()
		req := driver.Request{Key: "k", Cost: 1, Policy: policy, MaySettle: true}
		_, decided := store.Decide(t.Context(), req)
		_, once := store.DecideOnce(t.Context(), "id", req)
		settled := store.Settle(t.Context(), driver.Settlement{Request: req, At: start.UnixMicro(), ID: "id"})
		for call, err := range map[string]error{"Decide": decided, "DecideOnce": once, "Settle": settled} {
			if err == nil || !strings.Contains(err.Error(), " of this version") {
				t.Errorf("%v: %s on %.4q: %v", policy.Algorithm, call, what, err)
			}
		}
	}
	for p, values := range map[*driver.Policy][]string{
		fixed:  {"\x01" + strings.Repeat("\xff", 60), "\x01", "\x01" + strings.Repeat("\x00", 60), strings.Repeat("\x02", 60)},
		policy: {strings.Repeat("\x02", 60), "\x02", "\x01" + strings.Repeat("\x00", 60), "\x02\x02\xff" + strings.Repeat("\x00", 60), "\x04", strings.Repeat("\x04", 60), strings.Repeat("\x04", 600)},
	} {
		for _, value := range values {
			server.Must(t, "SET", store.Key("k", p), value)
			check(p, value)
			if got := scripts.client.Get(t.Context(), store.Key("k", p)).Val(); got != value {
				t.Errorf("%.4q was overwritten", value)
			}
		}
	}
	server.Must(t, "ZADD", store.Key("k", set), "5", "member")
	check(set, "a set")
	for member, score := range map[string]string{"keep": "-3600000000", "behind": "9e15"} {
		server.Must(t, "DEL", store.Key("k", set))
		if _, err := store.Decide(t.Context(), driver.Request{Key: "k", Cost: 1, Policy: set}); err != nil {
			t.Fatal(err)
		}
		server.Must(t, "ZADD", store.Key("k", set), score, member)
		check(set, member)
	}
}

// A repetition leaves its subject as it is when another program has taken the key's expiry away.
func TestARepetitionKeepsItsSubject(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		store, _, scripts := virtual(t, server.Addr(), nil)
		policy := newPolicy(t, options(a), sash.PerHour(10))
		for range 2 {
			res, err := store.DecideOnce(t.Context(), "id", driver.Request{Key: "k", Cost: 4, Policy: policy})
			if err != nil || res.Remaining() != 6 {
				t.Errorf("%v: %+v, %v", a, res, err)
			}
			scripts.client.Persist(t.Context(), store.Key("k", policy))
		}
		if look, err := store.Decide(t.Context(), driver.Request{Key: "k", Policy: policy}); err != nil || look.Remaining() != 6 {
			t.Errorf("%v: then %+v, %v", a, look, err)
		}
	}
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
		"key patterns": {{"ACL", "SETUSER", "default", "resetkeys", "~sash:log2:subject?1"}},
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
