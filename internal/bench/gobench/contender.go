// Package gobench measures limiters inside one process: memstore beside other limiters in Go.
package gobench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"example.com/sash"
	"example.com/sash/memstore"
)

// A contender is a way to limit in this process.
type contender struct {
	name  string
	open  func(limits ...sash.Limit) limiter // the same limits for every key
	multi bool                               // takes several limits
	exact bool                               // never exceeds the limit in any sliding window, never refuses with room
	waits bool                               // allow waits until there is room
	rival bool                               // sash should be no slower
	keyed bool                               // a library that does less, for any key
}

// A limiter decides for one unit.
type limiter struct {
	allow func(key string) bool
	close func() // nil if there is nothing to close
}

func (l limiter) stop() {
	if l.close != nil {
		l.close()
	}
}

func contenders() []contender {
	return []contender{
		{name: "sash over memstore", exact: true, open: openOurs, multi: true},
		{name: "slice log by hand", exact: true, open: openSliceLog, rival: true},
		{name: "ring log by hand (floor)", exact: true, open: openRingLog},
		{name: "certmagic ring buffer (Wait)", open: openCertmagic, waits: true, rival: true},
		{name: "x/time/rate a key (token bucket)", open: openTokenBucket, keyed: true},
		{name: "go-limiter memorystore (fixed window)", open: openGoLimiter, keyed: true},
		{name: "throttled memstore (GCRA)", open: openThrottled, keyed: true},
	}
}

// must panics with an error, which means that a limit or an option of this program is invalid.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("gobench: %v", err))
	}
	return v
}

// openOurs opens a Limiter over memstore, called as users call it.
func openOurs(limits ...sash.Limit) limiter {
	l := must(sash.New(memstore.New(nil), nil, limits...))
	return limiter{allow: func(key string) bool {
		res, err := l.Allow(context.Background(), key)
		return err == nil && res.Allowed
	}}
}

// only returns the limit of a contender that takes one.
func only(limits []sash.Limit) (units int, window time.Duration) {
	return int(limits[0].Units), limits[0].Window
}

// perKey keeps a value for each key.
type perKey[T any] struct {
	all  sync.Map // key to T
	open func() T
}

func (p *perKey[T]) of(key string) T {
	if v, ok := p.all.Load(key); ok {
		return v.(T)
	}
	v, _ := p.all.LoadOrStore(key, p.open())
	return v.(T)
}

// openCertmagic opens certmagic's limiter, one with a goroutine for each key. It keeps the bound, but its Allow
// also refuses while that goroutine is not ready, so the blocking Wait is what compares.
func openCertmagic(limits ...sash.Limit) limiter {
	units, window := only(limits)
	rings := &perKey[*certmagic.RingBufferRateLimiter]{open: func() *certmagic.RingBufferRateLimiter {
		return certmagic.NewRateLimiter(units, window)
	}}
	return limiter{
		allow: func(key string) bool { return rings.of(key).Wait(context.Background()) == nil },
		close: func() {
			for _, ring := range rings.all.Range {
				ring.(*certmagic.RingBufferRateLimiter).Stop()
			}
		},
	}
}

// openTokenBucket opens golang.org/x/time/rate, one limiter for each key.
func openTokenBucket(limits ...sash.Limit) limiter {
	units, window := only(limits)
	buckets := &perKey[*rate.Limiter]{open: func() *rate.Limiter {
		return rate.NewLimiter(rate.Limit(float64(units)/window.Seconds()), units)
	}}
	return limiter{allow: func(key string) bool { return buckets.of(key).Allow() }}
}

// openGoLimiter opens the in-memory store of github.com/sethvargo/go-limiter.
func openGoLimiter(limits ...sash.Limit) limiter {
	units, window := only(limits)
	store := must(memorystore.New(&memorystore.Config{Tokens: uint64(units), Interval: window}))
	return limiter{
		allow: func(key string) bool {
			_, _, _, ok, err := store.Take(context.Background(), key)
			return ok && err == nil
		},
		close: func() { _ = store.Close(context.Background()) },
	}
}

// openThrottled opens the in-memory store of github.com/throttled/throttled.
func openThrottled(limits ...sash.Limit) limiter {
	units, window := only(limits)
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(units, window), MaxBurst: units - 1}
	l := must(throttled.NewGCRARateLimiterCtx(must(throttledstore.NewCtx(0)), quota))
	l.SetMaxCASAttemptsLimit(1000) // with the default of 10, contention is an error
	return limiter{allow: func(key string) bool {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		return !limited && err == nil
	}}
}
