package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

// A divided store has parts that fail by themselves: a subject's is its first letter, from a.
type divided struct {
	*memstore.Store

	mu   sync.Mutex
	down string // guarded by mu: the parts that fail
}

func (s *divided) fail(parts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = parts
}

func (s *divided) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	s.mu.Lock()
	fails := slices.Contains([]byte(s.down), req.Key[0])
	s.mu.Unlock()
	if fails {
		return driver.Answer{}, errRefused
	}
	return s.Store.Decide(ctx, req)
}

func partOf(key string, _ *driver.Policy) int { return int(key[0] - 'a') }

func TestAPartThatIsDownIsNotTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &divided{Store: memstore.New(nil)}
		var changes []string
		store := guarded(t, inner, failover.Options{Parts: 3, Part: partOf, OnChange: func(now failover.State, cause error) {
			changes = append(changes, fmt.Sprint(now, " ", errors.Is(cause, errRefused)))
		}})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		inner.fail("bc")
		for range 20 {
			for _, key := range []string{"b", "c", "b2"} {
				if _, err := l.Allow(t.Context(), key); !errors.Is(err, errRefused) {
					t.Fatalf("%s: %v", key, err)
				}
			}
			if res := allow(t, l, "a", 1); res.Source != driver.FromStore {
				t.Fatalf("a subject of a part that works: %+v", res)
			}
			time.Sleep(failover.DefaultBlip / 4)
		}
		if store.State() != failover.Down {
			t.Errorf("the store is %v", store.State())
		}
		inner.fail("c")
		time.Sleep(time.Second)
		if res := allow(t, l, "b", 1); res.Source != driver.FromStore || store.State() != failover.Down {
			t.Errorf("one of two is back: %+v; the store is %v", res, store.State())
		}
		inner.fail("")
		allow(t, l, "c", 1)
		if store.State() != failover.Up {
			t.Errorf("all are back, and the store is %v", store.State())
		}
		if last := changes[len(changes)-1]; last != "up false" || slices.Index(changes, "up false") != len(changes)-1 || changes[0] != "down true" {
			t.Errorf("changes: %v", changes)
		}
		if slices.Contains(changes, "down false") || slices.Contains(changes, "probing false") {
			t.Errorf("not up, and without a cause: %v", changes)
		}
	})
}

func TestPartsThatMakeNoSense(t *testing.T) {
	if _, err := failover.New(newFake(), &failover.Options{Parts: -1}); err == nil {
		t.Error("a store with fewer than no parts")
	}
	for _, opts := range []failover.Options{{Parts: 7}, {Part: partOf}, {Parts: 1, Part: partOf}, {Parts: 2, Part: func(string, *driver.Policy) int { return -5 }}} {
		l := newLimiter(t, guarded(t, newFake(), opts), nil, sash.PerHour(10))
		allow(t, l, "zzz", 1) // is some part's
	}
}
