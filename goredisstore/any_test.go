package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
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

// A subject whose key holds something else is left out, by every choice, on one server and apart. The error is that of the keys
// only if there is no other.
func TestAnyLeavesBadKeysOut(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaintNotificationsConfig: quiet})
	defer client.Close()
	store := goredisstore.New(client, nil)
	verbs := map[string]func(*sash.Limiter, ...sash.Subject) (int, bool, error){
		"AllowAny": func(l *sash.Limiter, subjects ...sash.Subject) (int, bool, error) {
			i, res, err := l.AllowAny(t.Context(), subjects...)
			return i, res.Allowed, err
		},
		"ReserveAny": func(l *sash.Limiter, subjects ...sash.Subject) (int, bool, error) {
			i, r, err := l.ReserveAny(t.Context(), subjects...)
			return i, err == nil && r.Allowed(), err
		},
		"BookAny": func(l *sash.Limiter, subjects ...sash.Subject) (int, bool, error) {
			i, r, err := l.BookAny(t.Context(), time.Second, subjects...)
			return i, err == nil && r.Allowed(), err
		},
	}
	for name, over := range map[string]driver.Store{"one step": store, "apart": apart{store}} {
		for _, algorithm := range sash.Algorithms() {
			opts := &sash.Options{Algorithm: algorithm}
			if algorithm == sash.SlidingBuckets {
				opts.Resolution = time.Second
			}
			l := newLimiter(t, over, opts, sash.PerHour(2))
			for verb, decide := range verbs {
				for _, n := range []int{2, 11} {
					prefix := fmt.Sprint(name, algorithm, verb, n)
					all := make([]sash.Subject, n)
					for i := range all {
						all[i] = sash.Subject{Key: fmt.Sprint(prefix, i), Cost: 2}
					}
					foul := func(i int, as ...any) {
						if err := client.Do(t.Context(), append([]any{as[0], store.Key(all[i].Key, l.Policy())}, as[1:]...)...).Err(); err != nil {
							t.Fatal(err)
						}
					}
					foul(0, "LPUSH", "x")
					if n > 2 {
						foul(5, "SET", "foreign")
					}
					var got []int
					for range n {
						i, allowed, err := decide(l, all...)
						if errors.Is(err, driver.ErrUnsupported) {
							break
						}
						if err != nil || i == 0 || n > 2 && i == 5 {
							t.Fatalf("%s: %d, %v", prefix, i, err)
						}
						if allowed {
							got = append(got, i)
						}
					}
					if want := n - 1 - n/11; len(got) != want && len(got) > 0 {
						t.Errorf("%s: charged %v, want each of %d good ones once", prefix, got, want)
					}
					for i := range all {
						client.Del(t.Context(), store.Key(all[i].Key, l.Policy()))
						foul(i, "LPUSH", "x")
					}
					i, _, err := decide(l, all...)
					if says := fmt.Sprint(err); i != -1 || !errors.Is(err, driver.ErrUnsupported) &&
						(!errors.Is(err, driver.ErrRejected) || !strings.Contains(says, "none of") || strings.Contains(says, "unavailable")) {
						t.Errorf("%s: with bad keys alone %d, %v", prefix, i, err)
					}
				}
			}
		}
	}
}

// apart is a store that does not choose in one step.
type apart struct{ *redisstore.Store }

func (apart) DecideAny(context.Context, []driver.Request) (int, driver.Answer, error) {
	return 0, driver.Answer{}, driver.ErrApart
}
