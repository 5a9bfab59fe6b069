package faulttest

import (
	"errors"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
)

// Half of the calls are on a key that holds something else. They are rejected, also in mode open, and do not count as
// failures: Redis decides all other calls.
func TestABadKeyTakesTheStoreFromNoOther(t *testing.T) {
	each(t, rejects)
}

func rejects(t *testing.T, a adapter) {
	const foreign = "a value that another program has left here, of any length: 0123456789 0123456789 0123456789"
	server := redistest.Start(t)
	redis := a.open(t, to(server.Addr(), time.Minute))
	for _, algorithm := range sash.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			opts := &sash.Options{Algorithm: algorithm}
			if algorithm == sash.SlidingBuckets {
				opts.Resolution = time.Second
			}
			store, err := failover.New(redis, &failover.Options{
				Modes: failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}}, Budget: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			l, err := sash.New(store, opts, sash.PerHour(100_000))
			if err != nil {
				t.Fatal(err)
			}
			name := func(key string) string { return redis.Key(key, l.Policy()) }
			kinds := []string{"a list", "foreign"}
			server.Must(t, "DEL", name("a list"), name("foreign"))
			server.Must(t, "LPUSH", name("a list"), "x")
			if algorithm == sash.SortedSetLog {
				server.Must(t, "ZADD", name("foreign"), "5", "member")
			} else {
				server.Must(t, "SET", name("foreign"), foreign)
			}
			calls := map[string]func() error{}
			for _, kind := range kinds {
				calls[kind] = func() error { _, err := l.Allow(t.Context(), kind); return err }
				calls[kind+", once"] = func() error { _, err := l.AllowOnce(t.Context(), "id", kind, 1); return err }
				calls[kind+", both"] = func() error {
					_, err := l.AllowAll(t.Context(), sash.Subject{Key: "good", Cost: 1}, sash.Subject{Key: kind, Cost: 1})
					return err
				}
			}
			for kind, bad := range calls {
				for range 20 {
					if err := bad(); !errors.Is(err, driver.ErrRejected) || !errors.Is(err, sash.ErrUnavailable) {
						t.Fatalf("%s: %v", kind, err)
					}
				}
				for i := range 40 {
					if i%2 == 0 {
						_ = bad()
					}
					if res, err := l.Allow(t.Context(), "good"); err != nil || res.Source != sash.FromStore {
						t.Fatalf("%s takes the store from others: %+v, %v", kind, res, err)
					}
				}
			}
			if store.State() != failover.Up {
				t.Errorf("the store is %v", store.State())
			}
		})
	}
}
