package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// fewIDs are thresholds under which a subject remembers 4 to 8 IDs.
var fewIDs = threshold.Scripts.But(threshold.Table{"BUCKET": 2, "LOG_IDS": 8, "HASH_IDS": 8})

// A subject that has forgotten IDs of settlements gives no units back twice, however old ones are repeated. What it has
// just seen it remembers.
func TestASubjectWithTooManyIDs(t *testing.T) {
	server := redistest.Start(t)
	before := threshold.IDs
	threshold.IDs = 6
	defer func() { threshold.IDs = before }()
	for _, a := range sash.Algorithms() {
		t.Run("redis/"+a.String(), func(t *testing.T) {
			for seed := range uint64(15) {
				store, clock, scripts := virtual(t, server.Addr(), nil)
				scripts.thresholds = fewIDs
				if err := walkIDs(t, store, clock, a, seed); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
		t.Run("memory/"+a.String(), func(t *testing.T) {
			for seed := range uint64(100) {
				clock := judge.NewClock(start)
				if err := walkIDs(t, memstore.New(&memstore.Options{Now: clock.Now}), clock, a, seed); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// The walk counts within one window, which no charge leaves.
func walkIDs(t testing.TB, store driver.Store, clock *judge.Clock, a sash.Algorithm, seed uint64) (err error) {
	defer caught(&err)
	rng := rand.New(rand.NewPCG(seed, 17))
	clock.Advance(clock.Now().Truncate(time.Hour).Add(time.Hour + time.Second).Sub(clock.Now()))
	req := driver.Request{Key: fmt.Sprint(a, seed), Policy: newPolicy(t, options(a), sash.Every(10_000, time.Hour)), MaySettle: true}
	used := func() int64 {
		res := must(drivertest.Of(store).Decide(t.Context(), req))
		return 10_000 - res.Remaining()
	}
	// unchanged does something that the store has just done once more.
	unchanged := func(what string, again func() error) {
		before := used()
		check(again())
		if after := used(); after != before {
			check(fmt.Errorf("%d were in use, and %d after %s was repeated", before, after, what))
		}
	}
	var open, settled []driver.Settlement
	var least int64 // that are in use
	for step := range 200 {
		clock.Advance(time.Duration(rng.IntN(2000)) * time.Millisecond)
		switch n := rng.IntN(3); {
		case n == 0 && len(open) > 0:
			i := rng.IntN(len(open))
			set := open[i]
			open = append(open[:i:i], open[i+1:]...)
			set.ID, set.Units = fmt.Sprint("s", step), rng.Int64N(2*set.Request.Cost)
			settle := func() error { return drivertest.Of(store).Settle(t.Context(), set) }
			check(settle())
			least += set.Units - set.Request.Cost
			settled = append(settled, set)
			unchanged("a settlement", settle)
		case n == 1 && len(settled) > 0:
			check(drivertest.Of(store).Settle(t.Context(), settled[rng.IntN(len(settled))]))
		default:
			call := req
			call.Cost = 1 + rng.Int64N(5)
			id := fmt.Sprint("c", step)
			res := must(drivertest.Of(store).Once(t.Context(), id, call))
			least += call.Cost
			if rng.IntN(3) > 0 {
				open = append(open, driver.Settlement{Request: call, At: res.At, Source: res.Source})
			}
			unchanged("a call", func() error {
				again, err := drivertest.Of(store).Once(t.Context(), id, call)
				if err == nil && (again.At != res.At || !again.Allowed()) {
					err = fmt.Errorf("a call got %+v, and repeated %+v", res, again)
				}
				return err
			})
		}
		if used := used(); used < least && a != sash.GCRA { // whose debt shrinks
			return fmt.Errorf("step %d: %d are in use, after charges and settlements of %d", step, used, least)
		}
	}
	return nil
}

// Reservations that are cancelled leave nothing in Redis but the key of their subject, however many there are, and that is bounded.
func TestCancelledReservationsLeaveNoKeys(t *testing.T) {
	const calls = 10_000
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.FixedWindow} { // one of each type of key
		for _, subjects := range []int{1, calls / 10} {
			t.Run(fmt.Sprint(a, "/", subjects), func(t *testing.T) {
				server := redistest.Start(t)
				client := newClient(t, server.Addr())
				store := redisstore.New(&scripter{client: client}, nil)
				l := newLimiter(t, store, options(a), sash.PerHour(1000))
				for i := range calls {
					r, err := l.Reserve(t.Context(), fmt.Sprint(i%subjects), 1, nil)
					if err != nil || !r.Allowed() {
						t.Fatalf("reservation %d: %v", i, err)
					}
					check(r.Cancel(t.Context()))
				}
				if keys := client.DBSize(t.Context()).Val(); keys != int64(subjects) {
					t.Errorf("%d keys are left of %d subjects", keys, subjects)
				}
				var bytes int64
				for i := range subjects {
					bytes += client.MemoryUsage(t.Context(), store.Key(fmt.Sprint(i), l.Policy())).Val()
				}
				each := bytes / int64(subjects)
				// Redis reserves twice what a string needs when it grows.
				if most := 2 * (20*threshold.Scripts["LOG_IDS"] + 1000); each > most {
					t.Errorf("a subject takes %d bytes, more than %d", each, most)
				}
				t.Logf("%d bytes a subject after %d reservations each", each, calls/subjects)
			})
		}
	}
}

// A subject remembers as many IDs as promised.
func TestHowManyIDsASubjectRemembers(t *testing.T) {
	server := redistest.Start(t)
	client := newClient(t, server.Addr())
	redis := redisstore.New(&scripter{client: client}, nil)
	for _, c := range []struct {
		store driver.Store
		a     sash.Algorithm
		many  int
	}{
		{redis, sash.SlidingLog, 5000},
		{redis, sash.SortedSetLog, 300},
		{redis, sash.FixedWindow, 300},
		{memstore.New(nil), sash.SlidingLog, 5000},
	} {
		l := newLimiter(t, c.store, options(c.a), sash.Every(100_000, 24*time.Hour))
		var at []time.Time
		for i := range 2 * c.many {
			res, err := l.AllowOnce(t.Context(), fmt.Sprint(i%c.many), "many", 1)
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if i < c.many {
				at = append(at, res.At)
			} else if !res.At.Equal(at[i%c.many]) {
				t.Fatalf("%T, %v: call %d of %d is a new one when it is repeated", c.store, c.a, i%c.many, c.many)
			}
		}
	}
}

// What Inspect reads of a log is the list of the charges that random calls, settlements included, have made: the
// newest of them, and all that a window can still hold.
func TestInspectReadsTheChargesThatWereMade(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			store, clock, _ := virtual(t, server.Addr(), nil)
			random := rand.New(rand.NewPCG(7, uint64(a)))
			opts := inSeconds(a)
			policies := []*driver.Policy{
				newPolicy(t, opts, sash.Every(40, 10*time.Second)),
				newPolicy(t, opts, sash.Every(30, 5*time.Second), sash.Every(300, time.Minute)),
			}
			s := newScenario(store, clock, policies[0])
			s.settles = true
			compared := 0
			for n := range 600 {
				clock.Advance(time.Duration(random.Int64N(600_000)) * time.Microsecond)
				s.policy = policies[random.IntN(len(policies))]
				cost := random.Int64N(4)
				if answer := s.call(cost, 0); answer.Allowed() && cost > 0 && random.IntN(5) == 0 { // it was less, or nothing
					s.settle(cost, answer, random.Int64N(cost), "", 1)
				}
				state, err := store.Inspect(t.Context(), s.name, s.policy)
				if err := errors.Join(s.err, err); err != nil {
					t.Fatalf("step %d: %v", n, err)
				}
				charges, inside := s.oracle.state(s.request(0)).(*log), 0
				var made []redisstore.Entry
				for _, c := range charges.charges {
					if last := len(made) - 1; last >= 0 && made[last].At.UnixMicro() == c.at {
						made[last].Units += c.units
						continue
					}
					made = append(made, redisstore.Entry{At: time.UnixMicro(c.at), Units: c.units})
					if c.at > clock.Now().UnixMicro()-charges.keep {
						inside++
					}
				}
				if state == nil && inside == 0 {
					continue
				}
				if state == nil || !state.At.Equal(clock.Now()) || state.Bytes <= 0 || state.TTL <= 0 || state.Key != store.Key(s.name, s.policy) {
					t.Fatalf("step %d: %+v", n, state)
				}
				got := state.Entries
				// Entries before that may be there as long as nothing took their place.
				if len(got) < inside || len(got) > len(made) || !slices.EqualFunc(got, made[len(made)-len(got):], sameEntry) {
					t.Fatalf("step %d: it has\n%v\nwhere these were charged:\n%v", n, got, made)
				}
				compared += len(got)
			}
			if compared < 1000 {
				t.Errorf("only %d entries were compared", compared)
			}
		})
	}
}

func sameEntry(a, b redisstore.Entry) bool { return a.At.Equal(b.At) && a.Units == b.Units }

// A key of something else is an error, and a missing one is not.
func TestInspectOfSomethingElse(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(&scripter{client: newClient(t, server.Addr())}, nil)
	for _, a := range sash.Algorithms() {
		policy := newPolicy(t, options(a), sash.PerMinute(3))
		if state, err := store.Inspect(t.Context(), "nobody", policy); state != nil || err != nil {
			t.Errorf("%v: nobody: %+v, %v", a, state, err)
		}
		name := store.Key("k", policy)
		for _, command := range [][]string{
			{"SET", name, "words"}, {"HSET", name, "field", "value"}, {"ZADD", name, "5", "member"}, {"RPUSH", name, "x"},
			{"SET", name, "\x02" + string(make([]byte, 200))},
		} {
			if command[0] == "SET" && !a.Exact() || command[0] == "ZADD" && a == sash.SortedSetLog {
				continue // a decision reads the value, and says so
			}
			server.Must(t, "DEL", name)
			server.Must(t, command...)
			if state, err := store.Inspect(t.Context(), "k", policy); err == nil {
				t.Errorf("%v: %q was read as %+v", a, command, state)
			}
		}
	}
}

func TestInstancesAreCountedWhileTheyLive(t *testing.T) {
	store, clock, _ := virtual(t, redistest.Start(t).Addr(), nil)
	const ttl = 10 * time.Second
	beat := func(group, id string, want int) {
		t.Helper()
		n, err := store.Instances(context.Background(), group, id, ttl)
		if err != nil || n != want {
			t.Errorf("%s counts %d instances, want %d (%v)", id, n, want, err)
		}
	}
	for i := range 4 {
		beat("g", fmt.Sprint("i", i), i+1)
	}
	beat("g", "i0", 4) // it is counted once
	beat("another", "i0", 1)
	clock.Advance(6 * time.Second)
	for _, id := range []string{"i0", "i1", "i3"} {
		beat("g", id, 4)
	}
	clock.Advance(4*time.Second - time.Millisecond)
	beat("g", "i0", 4)
	clock.Advance(time.Millisecond)
	beat("g", "i1", 3) // i2 has died
	beat("g", "i2", 4) // and comes back
	clock.Advance(time.Hour)
	beat("g", "i3", 1)
}

func TestGroupsOfInstancesGo(t *testing.T) {
	l := startLive(t)
	for _, ttl := range []time.Duration{time.Hour, time.Minute} { // the shorter does not shorten it
		must(l.store.Instances(t.Context(), "g", ttl.String(), ttl))
		left, err := l.client.PTTL(t.Context(), "sash:instances:g").Result()
		if err != nil || left > time.Hour || left < 59*time.Minute {
			t.Errorf("the group lives for %v (%v)", left, err)
		}
	}
	for _, wrong := range []struct {
		group, id string
		ttl       time.Duration
		want      error
	}{{"", "i", time.Second, sash.ErrInvalidKey}, {"g", "", time.Second, sash.ErrInvalidKey}, {"g", "i", 0, sash.ErrInvalidLimit}} {
		if n, err := l.store.Instances(t.Context(), wrong.group, wrong.id, wrong.ttl); !errors.Is(err, wrong.want) {
			t.Errorf("%+v: %d, %v", wrong, n, err)
		}
	}
}
