package modeltest

import (
	"bufio"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// recordForms is for whoever gives a value another form.
var recordForms = flag.String("forms.record", "", "add keys of new names to testdata/forms.txt, under this name of the build")

// A formKey is a key as a build wrote it: SET and the value, ZADD and scores with members, or HSET and fields with values.
type formKey struct {
	build, name, command string
	args                 []string
}

// writeForms makes calls of every kind, and returns the keys that result, in the order of their names.
func writeForms(t *testing.T, store *redisstore.Store, client *redis.Client) (keys []formKey) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range sash.Algorithms() {
		policy := newPolicy(t, options(a), sash.PerHour(10))
		for _, id := range []string{"one", "two"} {
			_, err := drivertest.Of(store).Once(ctx, id, driver.Request{Key: "k", Cost: 2, Policy: policy})
			must(err)
		}
		reserved := driver.Request{Key: "reserved", Cost: 3, Policy: policy, MaySettle: true}
		answer, err := drivertest.Of(store).Decide(ctx, reserved)
		must(err)
		set := driver.Settlement{Request: reserved, At: answer.At, Source: answer.Source, Units: 1, ID: "settled"}
		must(drivertest.Of(store).Settle(ctx, set))
		if store.Powers()&driver.CanBook != 0 && policy.Bookable() {
			month := newPolicy(t, options(a), sash.PerCalendar(10, sash.CalendarMonth, nil))
			_, err := drivertest.Of(store).Decide(ctx, driver.Request{Key: "counted", Cost: 6, Policy: month})
			must(err)
			for range 3 {
				_, err := drivertest.Of(store).Decide(ctx, driver.Request{Key: "booked", Cost: 6, Policy: policy, Within: driver.MaxAhead})
				must(err)
			}
		}
		blocks := *policy
		blocks.Block = driver.Block{Refusals: 1, Window: 60e6, Length: 60e6}
		for range 2 {
			_, err := drivertest.Of(store).Decide(ctx, driver.Request{Key: "blocked", Cost: 10, Policy: &blocks})
			must(err)
		}
	}
	_, err := drivertest.Of(store).Cool(ctx, "cooled", driver.CoolDown{Length: 60e6})
	must(err)
	names, err := client.Keys(ctx, "*").Result()
	must(err)
	slices.Sort(names)
	for _, name := range names {
		key := formKey{name: name, command: "SET"}
		if kind := client.Type(ctx, name).Val(); kind == "zset" {
			key.command = "ZADD"
			for _, z := range client.ZRangeWithScores(ctx, name, 0, -1).Val() {
				key.args = append(key.args, strconv.FormatFloat(z.Score, 'f', -1, 64), z.Member.(string))
			}
		} else {
			key.args = []string{client.Get(ctx, name).Val()}
		}
		keys = append(keys, key)
	}
	return keys
}

const formsFile = "testdata/forms.txt"

// readForms returns the keys of earlier builds.
func readForms(t *testing.T) (keys []formKey) {
	t.Helper()
	file, err := os.Open(formsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		key := formKey{build: words[0], command: words[1], name: words[2]}
		for _, word := range words[3:] {
			arg, err := hex.DecodeString(word)
			if err != nil {
				t.Fatal(err)
			}
			key.args = append(key.args, string(arg))
		}
		keys = append(keys, key)
	}
	return keys
}

// recordForm adds a key.
func recordForm(t *testing.T, key formKey) {
	t.Helper()
	line := fmt.Sprint(*recordForms, " ", key.command, " ", key.name)
	for _, arg := range key.args {
		line += " " + hex.EncodeToString([]byte(arg))
	}
	file, err := os.OpenFile(formsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(file, line)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// Instances of two builds share a Redis during an upgrade, and neither rejects a key of the other's: a key that both name
// alike has the same value in both. The values of a build are those of writeForms.
func TestKeyNamesCarryTheFormOfTheirValues(t *testing.T) {
	server := redistest.Start(t)
	store, _, scripts := virtual(t, server.Addr(), nil)
	written := writeForms(t, store, scripts.client)
	old := readForms(t)
	for _, key := range written {
		known := false
		for _, other := range old {
			if other.name != key.name {
				continue
			}
			known = true
			if other.command != key.command || !slices.Equal(other.args, key.args) {
				t.Errorf("%s is a key of build %s, and this build writes another value under the same name. Give the form another number "+
					"(the constants above tags in redisstore.go), and add the keys with -forms.record. If you are sure that each build reads "+
					"what the other writes, replace the lines of build %s instead.\n%s %q\n%s %q", key.name, other.build, other.build,
					other.command, other.args, key.command, key.args)
			}
		}
		switch {
		case known:
		case *recordForms == "":
			t.Errorf("%s is a name of no build in %s: add it with -forms.record", key.name, formsFile)
		default:
			recordForm(t, key)
		}
	}

	server.Must(t, "FLUSHALL")
	for _, key := range readForms(t) {
		server.Must(t, "DEL", key.name)
		server.Must(t, append([]string{key.command, key.name}, key.args...)...)
		server.Must(t, "PEXPIRE", key.name, "7200000")
	}
	for _, a := range sash.Algorithms() {
		store, _, _ := virtual(t, server.Addr(), nil)
		policy := newPolicy(t, options(a), sash.PerHour(10))
		for _, id := range []string{"one", "two", "three"} {
			want := map[string]int64{"one": 6, "two": 6, "three": 4}[id]
			got, err := drivertest.Of(store).Once(t.Context(), id, driver.Request{Key: "k", Cost: 2, Policy: policy})
			if err != nil || got.Remaining() != want {
				t.Errorf("%s: %d units remain after %q, not %d; %v", store.Key("k", policy), got.Remaining(), id, want, err)
			}
		}
		for key, want := range map[string]int64{"reserved": 9, "blocked": 0} {
			got, err := drivertest.Of(store).Decide(t.Context(), driver.Request{Key: key, Policy: policy})
			if err != nil || got.Remaining() != want {
				t.Errorf("%s: %d units remain, not %d; %v", store.Key(key, policy), got.Remaining(), want, err)
			}
		}
	}
}

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
		_, decided := drivertest.Of(store).Decide(t.Context(), req)
		_, once := drivertest.Of(store).Once(t.Context(), "id", req)
		settled := drivertest.Of(store).Settle(t.Context(), driver.Settlement{Request: req, At: start.UnixMicro(), ID: "id"})
		for call, err := range map[string]error{"Decide": decided, "an ID": once, "Settle": settled} {
			if err == nil || !strings.Contains(err.Error(), " of this version") {
				t.Errorf("%v: %s on %.4q: %v", policy.Algorithm, call, what, err)
			}
		}
	}
	for p, values := range map[*driver.Policy][]string{
		fixed:  {"\x01" + strings.Repeat("\xff", 60), "\x01", "\x01" + strings.Repeat("\x00", 60), strings.Repeat("\x02", 60)},
		policy: {strings.Repeat("\x02", 60), strings.Repeat("\x02", 45), "\x02", "\x01" + strings.Repeat("\x00", 60), "\x02\x02\xff" + strings.Repeat("\x00", 60), "\x04", strings.Repeat("\x04", 60), strings.Repeat("\x04", 600)},
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
		if _, err := drivertest.Of(store).Decide(t.Context(), driver.Request{Key: "k", Cost: 1, Policy: set}); err != nil {
			t.Fatal(err)
		}
		server.Must(t, "ZADD", store.Key("k", set), score, member)
		check(set, member)
	}
}

// Before Redis 7.2 a key may end in mid-script, when the clock goes back there. What the script writes behind has no expiry, and is empty.
func TestWhatAKeyThatEndedLeavesIsEmpty(t *testing.T) {
	server := redistest.Start(t)
	store, _, _ := virtual(t, server.Addr(), nil)
	req := driver.Request{Key: "k", Cost: 4, Policy: newPolicy(t, nil, sash.PerHour(10)), MaySettle: true}
	key, of := store.Key("k", req.Policy), drivertest.Of(store)
	calls := []struct { // a settlement leaves such a value as it is, so the virtual clock first has to know the key from a decision
		name string
		call func() (driver.Answer, error)
	}{
		{"Decide", func() (driver.Answer, error) { return of.Decide(t.Context(), req) }},
		{"an ID", func() (driver.Answer, error) { return of.Once(t.Context(), "id", req) }},
		{"Settle", func() (driver.Answer, error) {
			err := of.Settle(t.Context(), driver.Settlement{Request: req, At: start.UnixMicro(), ID: "id"})
			if err != nil {
				return driver.Answer{}, err
			}
			return of.Decide(t.Context(), req)
		}},
	}
	for _, at := range []string{"0", "6", "12", "32", "77", "110", "700"} {
		for _, c := range calls {
			server.Must(t, "DEL", key)
			server.Must(t, "SETRANGE", key, at, "\x00\x00\x92\x00\x00\x00\x00F?\x16aK\xbc\x81\x10\xa3\x06aK\xbc\x82\x86\xf4")
			if answer, err := c.call(); err != nil || answer.Remaining() != 6 {
				t.Errorf("%s on what was written at %s: %d units remain, %v", c.name, at, answer.Remaining(), err)
			}
			if ttl := server.Must(t, "TTL", key).(int64); ttl < 3600 {
				t.Errorf("%s on what was written at %s: the key lives %d s", c.name, at, ttl)
			}
		}
	}
}

// A repetition leaves its subject as it is when another program has taken the key's expiry away.
func TestARepetitionKeepsItsSubject(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		store, _, scripts := virtual(t, server.Addr(), nil)
		policy := newPolicy(t, options(a), sash.PerHour(10))
		for range 2 {
			res, err := drivertest.Of(store).Once(t.Context(), "id", driver.Request{Key: "k", Cost: 4, Policy: policy})
			if err != nil || res.Remaining() != 6 {
				t.Errorf("%v: %+v, %v", a, res, err)
			}
			scripts.client.Persist(t.Context(), store.Key("k", policy))
		}
		if look, err := drivertest.Of(store).Decide(t.Context(), driver.Request{Key: "k", Policy: policy}); err != nil || look.Remaining() != 6 {
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
		"key patterns": {{"ACL", "SETUSER", "default", "resetkeys", "~sash:log3:subject?1"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			scripts := &scripter{client: newClient(t, server.Addr())}
			store := redisstore.New(scripts, nil)
			reqs := plainRequests(t, 3)
			for _, command := range commands {
				server.Must(t, command...)
			}
			ops, _ := drivertest.Of(store).Each(t.Context(), reqs...)
			for i := range reqs {
				if !errors.Is(ops[i].Err, driver.ErrApart) {
					t.Errorf("subject %d: %v", i, ops[i].Err)
				}
			}
			if _, ok := store.Gathers(plain(reqs[0])); !ok {
				t.Error("the store gathers no more")
			}
		})
	}
}

// What is no plain decision goes by itself.
func TestWhatDoesNotGoWithOthers(t *testing.T) {
	store := redisstore.New(&scripter{}, nil)
	confirmed := redisstore.New(&scripter{}, &redisstore.Options{Replicas: 1})
	call := plainRequests(t, 1)[0]
	if _, ok := store.Gathers(plain(call)); !ok {
		t.Error("a plain decision goes by itself")
	}
	if _, ok := confirmed.Gathers(plain(call)); ok {
		t.Error("a decision that waits for replicas goes with others")
	}
	with := func(change func(*driver.Request, *driver.Policy)) driver.Request {
		req, policy := call, *call.Policy
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
		if _, ok := store.Gathers(plain(req)); ok {
			t.Errorf("%s: it goes with others", name)
		}
	}
}

// A cluster behind a client that does not look like one rejects keys of several slots: then calls go alone, all of them are
// decided, and no further round trip is tried in vain.
func TestACrossedSlotEndsGathering(t *testing.T) {
	server := redistest.StartCluster(t, redistest.ClusterOptions{Primaries: 1}).Primaries[0]
	scripts := &scripter{client: newClient(t, server.Addr())}
	store := redisstore.New(scripts, nil)
	reqs := plainRequests(t, 4)
	ops, _ := drivertest.Of(store).Each(t.Context(), reqs...)
	for i := range reqs {
		if !errors.Is(ops[i].Err, driver.ErrApart) {
			t.Errorf("subject %d: %v", i, ops[i].Err)
		}
	}
	if _, ok := store.Gathers(plain(reqs[0])); ok {
		t.Error("the store still gathers")
	}
}
