package modeltest

import (
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
	const step = time.Second
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			store, clock, _ := virtual(t, server.Addr(), nil)
			random := rand.New(rand.NewPCG(7, uint64(a)))
			opts := &sash.Options{Algorithm: a}
			if a == sash.SlidingBuckets {
				opts.Resolution = step
			}
			policies := []*driver.Policy{
				newPolicy(t, opts, sash.Every(40, 10*time.Second)),
				newPolicy(t, opts, sash.Every(30, 5*time.Second), sash.Every(300, time.Minute)),
			}
			var made []redisstore.Entry // what was charged, by the definition
			longest := time.Duration(0)
			compared := 0
			for n := range 600 {
				clock.Advance(time.Duration(random.Int64N(int64(600 * time.Millisecond))).Truncate(time.Microsecond))
				policy := policies[random.IntN(len(policies))]
				req := driver.Request{Key: "k", Cost: random.Int64N(4), Policy: policy, MaySettle: true}
				res, err := store.Decide(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if res.Allowed() && req.Cost > 0 {
					longest = max(longest, time.Duration(policy.Longest())*time.Microsecond)
					at := time.UnixMicro(res.At)
					last := len(made) - 1
					if last >= 0 && (made[last].At.Equal(at) || a == sash.SlidingBuckets && made[last].At.Truncate(step).Equal(at.Truncate(step))) {
						made[last] = redisstore.Entry{At: at, Units: made[last].Units + req.Cost}
					} else {
						made = append(made, redisstore.Entry{At: at, Units: req.Cost})
					}
					if random.IntN(5) == 0 { // it was less, or nothing
						worth := random.Int64N(req.Cost)
						if err := store.Settle(t.Context(), driver.Settlement{Request: req, At: res.At, Source: res.Source, Units: worth}); err != nil {
							t.Fatal(err)
						}
						if last := len(made) - 1; made[last].Units == req.Cost-worth {
							made = made[:last]
						} else {
							made[last].Units -= req.Cost - worth
						}
					}
				}
				state, err := store.Inspect(t.Context(), "k", policy)
				if err != nil {
					t.Fatal(err)
				}
				if state == nil {
					if len(made) > 0 && made[len(made)-1].At.Add(longest).After(clock.Now()) {
						t.Fatalf("step %d: there is no key, and %v still count", n, made[len(made)-1])
					}
					continue
				}
				if !state.At.Equal(clock.Now()) || state.Bytes <= 0 || state.TTL <= 0 || state.Key != store.Key("k", policy) {
					t.Fatalf("step %d: %+v", n, state)
				}
				got := state.Entries
				inside := slices.IndexFunc(made, func(e redisstore.Entry) bool { return e.At.After(clock.Now().Add(-longest)) })
				if inside < 0 {
					inside = len(made)
				}
				// Entries before that may be there as long as nothing took their place.
				if len(got) < len(made)-inside || len(got) > len(made) || !slices.EqualFunc(got, made[len(made)-len(got):], sameEntry) {
					t.Fatalf("step %d: it has\n%v\nwhere these were charged:\n%v", n, got, made[inside:])
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
			if command[0] == "SET" && !a.Exact() {
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
