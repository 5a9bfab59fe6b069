package coalesce_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/driver"
	"example.com/sash/stack/internal/coalesce"

	"example.com/sash"
)

// A many store is a far one that decides several subjects in one round trip, by what their keys begin with.
type many struct {
	*far
	mu    sync.Mutex
	trips [][]string                    // the keys of each round trip
	fails map[string]error              // by key
	hangs map[string]bool               // by key: the round trip lasts until its context ends
	place func(req *driver.Request) int // nil is one place
}

func newMany() *many {
	return &many{far: newFar(), fails: map[string]error{}, hangs: map[string]bool{}}
}

func (m *many) Gathers(op *driver.Op) (int, bool) {
	if m.place != nil {
		return m.place(&op.Request), true
	}
	return 0, true
}

func (m *many) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind != driver.Charge {
		return m.Store.Do(ctx, b)
	}
	err := m.travel(ctx, b.Ops...)
	return driver.OneByOne(ctx, b, func(ctx context.Context, op *driver.Op) error {
		fails := cmp.Or(err, m.fails[op.Key])
		if fails != nil && (len(b.Ops) > 1 || !errors.Is(fails, driver.ErrApart)) {
			return fails
		}
		op.Answer, fails = driver.Decide(ctx, m.Store, op.Request)
		return fails
	})
}

func (m *many) travel(ctx context.Context, ops ...driver.Op) error {
	m.underWay.Add(1)
	defer m.underWay.Add(-1)
	var keys []string
	hangs := false
	for _, op := range ops {
		keys = append(keys, op.Key)
		hangs = hangs || m.hangs[op.Key]
	}
	slices.Sort(keys)
	m.mu.Lock()
	m.trips = append(m.trips, keys)
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return pass(ctx, m.trip)
}

// A crowd makes calls at once, each on a key of its own, and waits for all.
type crowd struct {
	*testing.T
	l  *sash.Limiter
	wg sync.WaitGroup
}

func newCrowd(t *testing.T, store driver.Store) *crowd {
	return &crowd{T: t, l: limiter(t, coalesce.New(store), sash.PerMinute(10))}
}

func (c *crowd) allow(ctx context.Context, key string, check func(sash.Result, error)) {
	c.wg.Go(func() { check(c.l.Allow(ctx, key)) })
	synctest.Wait()
}

func (c *crowd) admitted(res sash.Result, err error) {
	if err != nil || !res.Allowed || res.Remaining != 9 {
		c.Errorf("%+v, %v", res, err)
	}
}

// keys makes calls on as many keys.
func (c *crowd) keys(from, to int) {
	for i := from; i < to; i++ {
		c.allow(c.Context(), fmt.Sprint("k", i), c.admitted)
	}
}

// As many calls as a round trip takes wait for none.
func TestAFullRoundTripLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		c := newCrowd(t, store)
		start := time.Now()
		c.keys(0, coalesce.MostTrips+3*coalesce.MostGathered)
		c.wg.Wait()
		if took := time.Since(start); took != store.trip {
			t.Errorf("took %v; a round trip is %v", took, store.trip)
		}
		for _, keys := range store.trips {
			if len(keys) > coalesce.MostGathered {
				t.Errorf("%d requests in a round trip", len(keys))
			}
		}
		start = time.Now()
		c.keys(100, 101+coalesce.MostTrips)
		c.wg.Wait()
		if took := time.Since(start); took != 2*store.trip || len(store.trips) != 2*coalesce.MostTrips+4 {
			t.Errorf("afterwards: took %v, and %d round trips in all", took, len(store.trips))
		}
	})
}

// No key is twice in a round trip: calls of one key that are not added up, such as peeks, do not wait for each other.
func TestARoundTripHasNoKeyTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		c := newCrowd(t, store)
		c.keys(0, coalesce.MostTrips)
		start := time.Now()
		for range 3 {
			c.wg.Go(func() {
				if res, err := c.l.Peek(t.Context(), "k"); err != nil || res.Remaining != 10 {
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
		c.keys(100, 103)
		c.wg.Wait()
		for _, keys := range store.trips {
			if len(slices.Compact(slices.Clone(keys))) < len(keys) {
				t.Errorf("a round trip for %v", keys)
			}
		}
		if took := time.Since(start); took != 2*store.trip {
			t.Errorf("took %v; two round trips are %v", took, 2*store.trip)
		}
	})
}

// An error is that of its own call, and a call that cannot be decided with others is decided alone.
func TestAnErrorAmongOthersIsOfItsOwnCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		bad := fmt.Errorf("another program's: %w", driver.ErrRejected)
		store.fails["bad"], store.fails["apart"] = bad, driver.ErrApart
		c := newCrowd(t, store)
		c.keys(0, coalesce.MostTrips+2)
		c.allow(t.Context(), "bad", func(_ sash.Result, err error) {
			if !errors.Is(err, driver.ErrRejected) {
				t.Errorf("the error is %v", err)
			}
		})
		c.allow(t.Context(), "apart", c.admitted)
		c.wg.Wait()
		if n := len(store.trips); n != coalesce.MostTrips+2 || !slices.Equal(store.trips[n-1], []string{"apart"}) {
			t.Errorf("the round trips are %v", store.trips)
		}
	})
}

// A place that hangs delays no call of another.
func TestPlacesThatHangDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		store.place = func(req *driver.Request) int { return int(req.Key[0]) }
		c := newCrowd(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range coalesce.MostTrips + 3 {
			key := fmt.Sprint("hangs", i)
			store.hangs[key] = true
			c.allow(ctx, key, func(_ sash.Result, err error) {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("a call that hangs: %v", err)
				}
			})
		}
		start := time.Now()
		c.keys(0, coalesce.MostTrips+8)
		time.Sleep(2 * store.trip)
		synctest.Wait()
		for _, keys := range store.trips {
			if len(keys) > 1 && keys[0][0] != keys[len(keys)-1][0] {
				t.Errorf("a round trip to two places: %v", keys)
			}
		}
		cancel()
		c.wg.Wait()
		if took := time.Since(start); took != 2*store.trip {
			t.Errorf("took %v; two round trips are %v", took, 2*store.trip)
		}
	})
}

// A caller that leaves while its call waits is not charged, and one that leaves later does not hold up the others.
func TestACallerThatLeavesAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		c := newCrowd(t, store)
		left := func(_ sash.Result, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error is %v", err)
			}
		}
		early, cancelEarly := context.WithTimeout(t.Context(), store.trip/2)
		defer cancelEarly()
		late, cancelLate := context.WithTimeout(t.Context(), store.trip+store.trip/2)
		defer cancelLate()
		c.keys(0, coalesce.MostTrips)
		c.allow(early, "early", left)
		c.allow(late, "late", left)
		c.keys(100, 102)
		c.wg.Wait()
		if res, err := c.l.Peek(t.Context(), "early"); err != nil || res.Remaining != 10 {
			t.Errorf("it left before its round trip: %d remain, %v", res.Remaining, err)
		}
	})
}

// What the store does not decide with others goes alone, and answers that are missing are an error of every call.
func TestAGathererThatTakesNoneOrAnswersNone(t *testing.T) {
	for name, store := range map[string]driver.Store{"takes none": &choosy{newMany(), false}, "answers none": &choosy{newMany(), true}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, store)
			for i := range coalesce.MostTrips + 3 {
				c.allow(t.Context(), fmt.Sprint("k", i), func(res sash.Result, err error) {
					if alone := name == "takes none" || i < coalesce.MostTrips; alone != (err == nil && res.Allowed) {
						t.Errorf("it %s: call %d: %+v, %v", name, i, res, err)
					}
				})
			}
			c.wg.Wait()
		})
	}
}

// A choosy store takes no call with others, or answers none of them.
type choosy struct {
	*many
	takes bool
}

func (c *choosy) Gathers(*driver.Op) (int, bool) { return 0, c.takes }

func (c *choosy) Do(ctx context.Context, b *driver.Batch) error {
	if len(b.Ops) > 1 {
		return nil
	}
	return c.many.Do(ctx, b)
}
