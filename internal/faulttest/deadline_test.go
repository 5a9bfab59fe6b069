package faulttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// Callers with deadlines of 0 to 1.5 ms come again at once, on a Redis that is well but further away than that, and on
// one that is near. What they are charged without an admission must not fill the limit.
func TestDeadlinesNearerThanTheStore(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		for name, late := range map[string]int{"near": 0, "2 ms away": 2} {
			t.Run(name, func(t *testing.T) {
				server := redistest.Start(t)
				addr := server.Addr()
				if late > 0 {
					p := through(t, addr)
					p.add(t, spoil{"latency", false, map[string]int{"latency": late}}, 1)
					addr = p.Listen
				}
				l := limiter(t, a.open(t, to(addr, time.Second)), sash.PerHour(100_000))
				admitted, ended := impatient(t, l, 2*time.Second)
				charged := used(t, limiter(t, a.open(t, to(server.Addr(), time.Second)), sash.PerHour(100_000)), "k")
				t.Logf("%d calls: %d charged, %d admitted", ended, charged, admitted)
				if lost := charged - admitted; lost > admitted+200 {
					t.Errorf("%d units were charged to callers who had left, and %d admitted", lost, admitted)
				}
				for range 20 { // a caller who can wait is not kept back
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					if res, err := l.Allow(ctx, "k"); err != nil || !res.Allowed {
						t.Errorf("%+v, %v", res, err)
					}
					cancel()
				}
			})
		}
	})
}

// impatient makes calls for a while, and returns how many were admitted and made.
func impatient(t *testing.T, l *sash.Limiter, during time.Duration) (admitted, made int64) {
	var ok, all atomic.Int64
	var callers sync.WaitGroup
	until := time.Now().Add(during)
	for range 16 {
		callers.Go(func() {
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(1500*time.Microsecond))
				res, err := l.Allow(ctx, "k")
				cancel()
				all.Add(1)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sash.ErrUnavailable) {
					t.Error(err)
				}
				if err == nil && res.Allowed {
					ok.Add(1)
				}
			}
		})
	}
	callers.Wait()
	return ok.Load(), all.Load()
}
