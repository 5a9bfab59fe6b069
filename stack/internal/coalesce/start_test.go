package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/stack/internal/coalesce"
)

// A begun call is one that was started.
type begun struct {
	driver.Started
	cancel context.CancelFunc
	mu     sync.Mutex
	times  int // that it was answered
	answer driver.Answer
	err    error
}

// leave is the end of a caller.
func (b *begun) leave() {
	b.cancel()
	b.Leave()
}

func (b *begun) result() (int, driver.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.times, b.answer, b.err
}

// begin starts a call of a unit.
func begin(t *testing.T, s *coalesce.Store, key string) *begun {
	t.Helper()
	b := &begun{}
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(t.Context())
	t.Cleanup(b.cancel)
	b.Started = s.Start(ctx, driver.Request{Key: key, Cost: 1, Policy: aPolicy()}, func(answer driver.Answer, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.times++
		b.answer, b.err = answer, err
	})
	if b.Started == nil {
		t.Fatal("it started nothing")
	}
	return b
}

func aPolicy() *driver.Policy {
	return &driver.Policy{Limits: []driver.Limit{{Units: 100, Window: time.Minute.Microseconds()}}}
}

// occupy starts as many calls as may be under way, all of which hang. So what is started then waits until one is left.
func occupy(t *testing.T, s *coalesce.Store, store *many) []*begun {
	t.Helper()
	var calls []*begun
	for i := range coalesce.MostTrips {
		key := fmt.Sprint("hangs", i)
		store.hangs[key] = true
		calls = append(calls, begin(t, s, key))
		synctest.Wait() // it leaves alone
	}
	return calls
}

func TestAStartedCallThatIsLeftBeforeItsRoundTripIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		s := coalesce.New(store)
		before := occupy(t, s, store)
		for range 2 { // after the first time nobody is before them any more
			first, second := begin(t, s, "k"), begin(t, s, "k")
			synctest.Wait()
			for _, c := range []*begun{second, first} {
				c.leave()
				if n, _, err := c.result(); n != 1 || !errors.Is(err, context.Canceled) {
					t.Errorf("answered %d times: %v", n, err)
				}
				if c.Leave(); c.times != 1 {
					t.Error("it was answered again")
				}
			}
		}
		for _, c := range before {
			c.leave()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if slices.ContainsFunc(store.trips, func(keys []string) bool { return slices.Contains(keys, "k") }) {
			t.Error("it was sent")
		}
	})
}

// A call is left before its context ends, which a caller must not do.
func TestAStartedCallThatIsLeftEarlyIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		s := coalesce.New(store)
		before := occupy(t, s, store)
		c := begin(t, s, "k")
		synctest.Wait()
		c.Leave()
		if n, _, err := c.result(); n != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("answered %d times: %v", n, err)
		}
		for _, c := range before {
			c.leave()
		}
		time.Sleep(time.Second)
	})
}

func TestAStartedCallThatIsLeftOnTheWayIsStillAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		s := coalesce.New(store)
		before := occupy(t, s, store)
		left, stays := begin(t, s, "a"), begin(t, s, "b")
		for _, c := range before {
			c.leave()
		}
		synctest.Wait()
		left.leave()
		if n, _, _ := left.result(); n != 0 {
			t.Error("it is answered before the store has answered")
		}
		time.Sleep(time.Second)
		for _, c := range []*begun{left, stays} {
			if n, answer, err := c.result(); n != 1 || err != nil || !answer.Allowed() {
				t.Errorf("answered %d times: %v, %v", n, answer, err)
			}
		}
	})
}

// A peek is not added up with a call of its key, and a round trip has no key twice.
func TestAStartedCallDoesNotWaitBehindAPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		s := coalesce.New(store)
		before := occupy(t, s, store)
		go func() { _, _ = limiter(t, s, sash.PerMinute(100)).Peek(t.Context(), "k") }()
		synctest.Wait()
		begin(t, s, "k")
		synctest.Wait()
		if last := store.trips[len(store.trips)-1]; !slices.Equal(last, []string{"k"}) {
			t.Errorf("the last round trip is for %v", last)
		}
		for _, c := range before {
			c.leave()
		}
	})
}

// A started call has its own error, is decided alone if it has to be, and none is left waiting by a panic.
func TestWhatBecomesOfStartedCallsAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		broken := errors.New("broken")
		store.fails["broken"], store.fails["apart"] = broken, driver.ErrApart
		s := coalesce.New(store)
		before := occupy(t, s, store)
		calls := map[string]*begun{}
		for _, key := range []string{"fine", "broken", "apart"} {
			calls[key] = begin(t, s, key)
		}
		before[0].leave()
		time.Sleep(time.Second)
		synctest.Wait()
		for key, want := range map[string]error{"fine": nil, "broken": broken, "apart": nil} {
			if n, _, err := calls[key].result(); n != 1 || !errors.Is(err, want) {
				t.Errorf("%s was answered %d times: %v, want %v", key, n, err, want)
			}
		}
		if last := store.trips[len(store.trips)-1]; !slices.Equal(last, []string{"apart"}) {
			t.Errorf("the last round trip is for %v", last)
		}
		store.panic = true
		store.hangs["hangs0"] = true
		begin(t, s, "hangs0")
		synctest.Wait()
		a, b := begin(t, s, "a"), begin(t, s, "b")
		before[1].leave()
		time.Sleep(time.Second)
		for _, c := range []*begun{a, b} {
			if n, _, err := c.result(); n != 1 || err == nil {
				t.Errorf("answered %d times: %v", n, err)
			}
		}
	})
}

// What cannot go with others is not started.
func TestWhatIsNotStarted(t *testing.T) {
	plain := driver.Request{Key: "k", Cost: 1, Policy: aPolicy()}
	counted := aPolicy()
	counted.CountRefused = true
	for name, c := range map[string]struct {
		store driver.Store
		edit  func(*driver.Request)
	}{
		"a peek":                      {newMany(), func(r *driver.Request) { r.Cost = 0 }},
		"a booking":                   {newMany(), func(r *driver.Request) { r.Within = 1 }},
		"what fits":                   {newMany(), func(r *driver.Request) { r.Partial = true }},
		"refused calls count":         {newMany(), func(r *driver.Request) { r.Policy = counted }},
		"the store does not gather":   {newFar(), func(*driver.Request) {}},
		"the store gathers it not":    {&choosy{newMany()}, func(*driver.Request) {}},
		"a decorator must see Decide": {driver.Passthrough{Next: newMany()}, func(*driver.Request) {}},
	} {
		req := plain
		c.edit(&req)
		if coalesce.New(c.store).Start(t.Context(), req, func(driver.Answer, error) { t.Error(name) }) != nil {
			t.Errorf("%s: it was started", name)
		}
	}
}

type choosy struct{ *many }

func (*choosy) Gathers(*driver.Request) (int, bool) { return 0, false }

// Callers that start, decide, peek and leave at random: each is answered once.
func TestEveryStartedCallIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		s := coalesce.New(store)
		l := limiter(t, s, sash.PerMinute(90_000))
		var calls [8][]*begun
		var wg sync.WaitGroup
		for w := range calls {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(w)))
				for range 200 {
					key := fmt.Sprint(random.IntN(40))
					switch random.IntN(8) {
					case 0:
						_, _ = l.Allow(t.Context(), key)
					case 1:
						_, _ = l.Peek(t.Context(), key)
					case 2:
						time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
					case 3:
						if n := len(calls[w]); n > 0 {
							calls[w][random.IntN(n)].leave()
						}
					default:
						calls[w] = append(calls[w], begin(t, s, key))
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		for _, c := range slices.Concat(calls[:]...) {
			if n, _, err := c.result(); n != 1 || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("answered %d times: %v", n, err)
			}
		}
	})
}

func TestARoundTripIsCanceledWhenAllStartedCallsAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMany()
		s := coalesce.New(store)
		before := occupy(t, s, store)
		store.hangs["a"] = true
		calls := []*begun{begin(t, s, "a"), begin(t, s, "b")}
		for _, c := range before {
			c.leave()
		}
		for _, c := range calls {
			synctest.Wait()
			if n, _, _ := c.result(); n != 0 {
				t.Fatal("it does not hang")
			}
			c.leave()
		}
		synctest.Wait()
		for _, c := range calls {
			if n, _, err := c.result(); n != 1 || err == nil {
				t.Errorf("answered %d times: %v", n, err)
			}
		}
	})
}
