package callers_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// An absent store is Redis that no decision reaches.
type absent struct {
	*redisstore.Store
	gone atomic.Bool
}

var errGone = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

func (s *absent) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if s.gone.Load() {
		return driver.Answer{}, errGone
	}
	return s.Store.Decide(ctx, req)
}

func (s *absent) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	if s.gone.Load() {
		return driver.Answer{}, errGone
	}
	return s.Store.DecideOnce(ctx, id, req)
}

// Redis counts everything that was admitted locally, even more at once than the smaller limit has units.
func TestRedisCountsWhatWasAdmittedLocally(t *testing.T) {
	l := startLive(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			redis := &absent{Store: l.store}
			redis.gone.Store(true)
			var ahead atomic.Int64 // of the local clock
			store, err := failover.New(redis, &failover.Options{
				Modes:    failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}},
				Budget:   5 * time.Second, // a machine that is slow is not what is tested here
				Local:    memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}),
				Classify: failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
			})
			if err != nil {
				t.Fatal(err)
			}
			limits := []sash.Limit{sash.PerHour(100), sash.Every(10, 30*time.Second)}
			limiter := newLimiter(t, store, options(a), limits...)
			for i := range 3 {
				if res, err := limiter.AllowN(t.Context(), a.String(), 6); err != nil || !res.Allowed {
					t.Fatal(res, err)
				}
				if res, err := limiter.AllowOnce(t.Context(), fmt.Sprint("job ", i), a.String(), 1); err != nil || !res.Allowed {
					t.Fatal(res, err)
				}
				r, err := limiter.Reserve(t.Context(), a.String(), 3)
				if err != nil || !r.Allowed() {
					t.Fatal(r, err)
				}
				if err := r.Settle(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				ahead.Add(int64(time.Minute))
			}
			redis.gone.Store(false)
			if err := store.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			res, err := l.limiter(t, a, limits...).Peek(t.Context(), a.String())
			if err != nil {
				t.Fatal(err)
			}
			if hour, short := res.Limits()[0].Remaining, res.Limits()[1].Remaining; hour != 100-3*8 || short != 0 || store.Stats().Written != 24 {
				t.Errorf("%d of 100 are left in Redis, and %d of 10, want 76 and none; %+v", hour, short, store.Stats())
			}
		})
	}
}

// Redis counts for each limiter of a key what that one admitted, also if another with a shorter window admitted last.
func TestRedisCountsWhatEachLimiterAdmittedLocally(t *testing.T) {
	l := startLive(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			redis := &absent{Store: l.store}
			redis.gone.Store(true)
			store, err := failover.New(redis, &failover.Options{
				Modes:    failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}},
				Budget:   5 * time.Second, // a machine that is slow is not what is tested here
				Local:    memstore.New(nil),
				Classify: failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, limit := range []sash.Limit{sash.PerHour(50), sash.Every(60, time.Second)} {
				limiter := newLimiter(t, store, options(a), limit)
				if res, err := limiter.AllowN(t.Context(), a.String(), limit.Units-45); err != nil || !res.Allowed {
					t.Fatal(res, err)
				}
			}
			redis.gone.Store(false)
			if err := store.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			res, err := l.limiter(t, a, sash.PerHour(50)).Peek(t.Context(), a.String())
			if err != nil || res.Remaining > 45 {
				t.Errorf("%d of 50 are left in Redis, want 45 at most: %v; %+v", res.Remaining, err, store.Stats())
			}
			policy, err := sash.NewPolicy(options(a), sash.PerHour(50))
			if err != nil {
				t.Fatal(err)
			}
			lives, err := l.client.PTTL(t.Context(), l.store.Key(a.String(), policy)).Result()
			if err != nil || a.Exact() && lives < time.Hour-time.Minute {
				t.Errorf("Redis forgets the key after %v, want an hour: %v", lives, err)
			}
		})
	}
}
