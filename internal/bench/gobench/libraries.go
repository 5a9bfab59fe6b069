package gobench

import (
	"context"
	"fmt"
	"sync"

	"github.com/caddyserver/certmagic"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"example.com/sash"
)

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

// certmagicRing is the limiter of certmagic, one with a goroutine for each key. It keeps the bound; but
// its Allow also refuses while its goroutine is not ready, so it is the blocking Wait that compares.
type certmagicRing struct {
	perKey[*certmagic.RingBufferRateLimiter]
}

func openCertmagic(limits ...sash.Limit) limiter {
	units, window := every(limits)
	l := &certmagicRing{}
	l.perKey.open = func() *certmagic.RingBufferRateLimiter { return certmagic.NewRateLimiter(units, window) }
	return l
}

func (l *certmagicRing) allow(key string) bool {
	return l.of(key).Wait(context.Background()) == nil
}

func (l *certmagicRing) close() {
	l.all.Range(func(_, v any) bool {
		v.(*certmagic.RingBufferRateLimiter).Stop()
		return true
	})
}

// tokenBucket is golang.org/x/time/rate, one for each key.
type tokenBucket struct{ perKey[*rate.Limiter] }

func openTokenBucket(limits ...sash.Limit) limiter {
	units, window := every(limits)
	l := &tokenBucket{}
	l.perKey.open = func() *rate.Limiter {
		return rate.NewLimiter(rate.Limit(float64(units)/window.Seconds()), units)
	}
	return l
}

func (l *tokenBucket) allow(key string) bool { return l.of(key).Allow() }
func (l *tokenBucket) close()                {}

// goLimiter is the in-memory store of github.com/sethvargo/go-limiter.
type goLimiter struct{ store golimiter.Store }

func openGoLimiter(limits ...sash.Limit) limiter {
	units, window := every(limits)
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(units), Interval: window})
	if err != nil {
		panic(fmt.Sprintf("gobench: %v", err)) // the configuration above is wrong
	}
	return goLimiter{store}
}

func (l goLimiter) allow(key string) bool {
	_, _, _, ok, err := l.store.Take(context.Background(), key)
	return ok && err == nil
}

func (l goLimiter) close() { _ = l.store.Close(context.Background()) }

// throttledGCRA is the in-memory store of github.com/throttled/throttled.
type throttledGCRA struct{ limiter *throttled.GCRARateLimiterCtx }

func openThrottled(limits ...sash.Limit) limiter {
	units, window := every(limits)
	store, err := throttledstore.NewCtx(0)
	if err == nil {
		var l *throttled.GCRARateLimiterCtx
		quota := throttled.RateQuota{MaxRate: throttled.PerDuration(units, window), MaxBurst: units - 1}
		if l, err = throttled.NewGCRARateLimiterCtx(store, quota); err == nil {
			l.SetMaxCASAttemptsLimit(1000) // with the default of 10, contention is an error
			return throttledGCRA{l}
		}
	}
	panic(fmt.Sprintf("gobench: %v", err)) // the configuration above is wrong
}

func (l throttledGCRA) allow(key string) bool {
	limited, _, err := l.limiter.RateLimitCtx(context.Background(), key, 1)
	return !limited && err == nil
}

func (l throttledGCRA) close() {}
