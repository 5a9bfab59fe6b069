package modeltest

import (
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
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
		policy: {strings.Repeat("\x02", 60), "\x02", "\x01" + strings.Repeat("\x00", 60), "\x02\x02\xff" + strings.Repeat("\x00", 60)},
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
