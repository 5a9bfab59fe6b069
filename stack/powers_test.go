package stack_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/stack"
)

// powers are what a limiter of 1,000 an hour can do with a store, each on a key of its own that nobody has called.
var powers = map[string]func(t *testing.T, store driver.Store, l *sash.Limiter, key string) (left int64, err error){
	"AllowN": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		res, err := l.AllowN(t.Context(), key, 2)
		return res.Remaining, err
	},
	"AllowOnce": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		if _, err := l.AllowOnce(t.Context(), "id", key, 2); err != nil {
			return 0, err
		}
		res, err := l.AllowOnce(t.Context(), "id", key, 2)
		return res.Remaining, err
	},
	"AllowAll": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		res, err := l.AllowAll(t.Context(), sash.Subject{Key: key, Cost: 2}, sash.Subject{Key: key + " two", Cost: 1})
		return res.Remaining, err
	},
	"AllowAny": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		_, res, err := l.AllowAny(t.Context(), sash.Subject{Key: key, Cost: 2}, sash.Subject{Key: key + " two", Cost: 2})
		return res.Remaining, err
	},
	"AllowUpTo": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		res, err := l.AllowUpTo(t.Context(), key, 5000)
		return res.Remaining + res.Charged - 2, err
	},
	"Reserve, Settle": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		r, err := l.Reserve(t.Context(), key, 40)
		if err == nil {
			err = r.Settle(t.Context(), 2)
		}
		if err != nil {
			return 0, err
		}
		res, err := l.Peek(t.Context(), key)
		return res.Remaining, err
	},
	"Book": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		r, err := l.Book(t.Context(), key, 2, time.Minute)
		if err != nil {
			return 0, err
		}
		return r.Result().Remaining, r.Wait(t.Context())
	},
	"Penalize, Reward": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		if _, err := l.Penalize(t.Context(), key, 1500); err != nil {
			return 0, err
		}
		res, err := l.Reward(t.Context(), key, 1498)
		return res.Remaining, err
	},
	"Reset": func(t *testing.T, _ driver.Store, l *sash.Limiter, key string) (int64, error) {
		if _, err := l.AllowN(t.Context(), key, 900); err != nil {
			return 0, err
		}
		if err := l.Reset(t.Context(), key); err != nil {
			return 0, err
		}
		res, err := l.AllowN(t.Context(), key, 2)
		return res.Remaining, err
	},
	"slots": func(t *testing.T, store driver.Store, _ *sash.Limiter, key string) (int64, error) {
		c, err := sash.NewConcurrency(store, nil, 1, time.Hour)
		if err != nil {
			return 0, err
		}
		slot, err := c.Start(t.Context(), key)
		if err != nil {
			return 0, err
		}
		if held, err := slot.Extend(t.Context()); !held || err != nil {
			return 0, fmt.Errorf("extended: %v, %w", held, err)
		}
		waits := make(chan error)
		go func() {
			next, err := c.Wait(t.Context(), key)
			if err == nil {
				err = next.Release(t.Context())
			}
			waits <- err
		}()
		if err := slot.Release(t.Context()); err != nil {
			return 0, err
		}
		return 998, <-waits
	},
	"Block": func(t *testing.T, store driver.Store, _ *sash.Limiter, key string) (int64, error) {
		block := sash.Block{Refusals: 2, Window: time.Minute, For: time.Hour}
		l, err := sash.New(store, &sash.Options{Block: block}, sash.PerHour(1))
		if err != nil {
			return 0, err
		}
		for range 3 {
			if _, err := l.Allow(t.Context(), key); err != nil {
				return 0, err
			}
		}
		res, err := l.Allow(t.Context(), key)
		if !res.Blocked {
			err = errors.Join(err, fmt.Errorf("not blocked: %+v", res))
		}
		return 998, err
	},
	"cool-downs": func(t *testing.T, store driver.Store, _ *sash.Limiter, key string) (int64, error) {
		cooler, ok := driver.As[driver.Cooler](store)
		if !ok {
			return 0, sash.ErrUnsupported
		}
		_, err := cooler.CoolDown(t.Context(), key, driver.CoolDown{})
		return 998, err
	},
}

// Each power of a store passes through, in every combination of the options.
func TestThePowersOfAStore(t *testing.T) {
	redis := redistest.Start(t)
	for name, store := range map[string]driver.Store{
		"memstore": memstore.New(nil),
		"redis":    redisstore.New(redistest.Scripter(redis), nil),
	} {
		for _, mode := range modes {
			for _, longest := range []time.Duration{0, 100 * time.Millisecond} {
				t.Run(fmt.Sprint(name, " ", mode, " ", longest), func(t *testing.T) {
					s := newStack(t, store, &stack.Options{
						Failover: failover.Options{Modes: always(mode), Budget: time.Minute}, Lease: longest,
					})
					l := newLimiter(t, s, sash.PerHour(1000))
					for power, use := range powers {
						if left, err := use(t, s, l, fmt.Sprint(power, mode, longest)); err != nil || left != 998 {
							t.Errorf("%s: %d of 1000 are left, want 998: %v", power, left, err)
						}
					}
					if err := s.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// A store that only decides gives its stack no power, and a limiter says so before it charges.
func TestAStackHasNoPowerThatItsStoreLacks(t *testing.T) {
	for _, longest := range []time.Duration{0, 100 * time.Millisecond} {
		s := newStack(t, struct{ driver.Store }{memstore.New(nil)}, &stack.Options{Lease: longest})
		l := newLimiter(t, s, sash.PerHour(1000))
		for power, use := range powers {
			_, err := use(t, s, l, power)
			if needsNone := power == "AllowN" || power == "AllowAny"; needsNone != (err == nil) || !needsNone && !errors.Is(err, sash.ErrUnsupported) {
				t.Errorf("%s: %v, want ErrUnsupported", power, err)
			}
		}
	}
}
