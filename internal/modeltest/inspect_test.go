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
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

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
			s := newScenario(store, clock, policies[0], nil)
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
	store := redisstore.New(&scripter{client: newClient(server.Addr())}, nil)
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
		if _, err := l.store.Instances(t.Context(), "g", ttl.String(), ttl); err != nil {
			t.Fatal(err)
		}
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
