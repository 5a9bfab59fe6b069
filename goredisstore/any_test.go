package goredisstore_test

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

// On a cluster a pool in one slot is decided in one script, and one in many slots by looks and a decision. Both admit
// exactly what all subjects together have.
func TestAnyOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaintNotificationsConfig: quiet})
	defer client.Close()
	store := goredisstore.New(client, nil)
	l := newLimiter(t, store, nil, sash.PerHour(5))
	for name, key := range map[string]func(string) string{
		"one slot":   func(id string) string { return sash.KeyTogether("pool", id) },
		"many slots": func(id string) string { return sash.Key("pool", id) },
	} {
		t.Run(name, func(t *testing.T) {
			pool := make([]sash.Subject, 2*sash.AnyGroup)
			reqs := make([]driver.Request, len(pool))
			for i := range pool {
				pool[i] = sash.Subject{Key: key(strconv.Itoa(i)), Cost: 1}
				reqs[i] = driver.Request{Key: pool[i].Key, Policy: l.Policy()}
			}
			_, _, err := store.DecideAny(t.Context(), reqs)
			if apart := errors.Is(err, driver.ErrApart); apart != (name == "many slots") {
				t.Fatal(err)
			}
			var admitted atomic.Int64
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for range 5 * len(pool) / 2 {
						if _, res, err := l.AllowAny(t.Context(), pool...); err != nil {
							t.Error(err)
							return
						} else if res.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			callers.Wait()
			if n := int(admitted.Load()); n != 5*len(pool) {
				t.Errorf("%d were admitted, want %d", n, 5*len(pool))
			}
		})
	}
}
