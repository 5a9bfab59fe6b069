package outgoing_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
	"example.com/sash/storetest"
)

// Waiting requests of all processes arrive in the order in which they were made, and the store decides each once.
func TestRequestsWaitInOrderWithOneDecisionEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu      sync.Mutex
			arrived []string
			group   sync.WaitGroup
			fleet   []http.RoundTripper
		)
		store := &seeing{Passthrough: driver.Passthrough{Next: newStore()}}
		for range 3 {
			fleet = append(fleet, newTransport(t, store, func(_ http.ResponseWriter, req *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				arrived = append(arrived, req.URL.Path)
			}, outgoing.Options{}, sash.PerSecond(10)))
		}
		var asked []string
		for i := range 200 {
			path := "/" + strconv.Itoa(i)
			asked = append(asked, path)
			group.Go(func() {
				if err := getPath(t, fleet[i%3], path); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		group.Wait()
		if !slices.Equal(arrived, asked) {
			t.Errorf("the requests arrived in the order %v", arrived)
		}
		if n := len(store.policies); n != 200 {
			t.Errorf("the store made %d decisions for 200 requests", n)
		}
	})
}

// A cool-down that begins while requests wait holds them back, and they give their places back.
func TestACoolDownHoldsBackRequestsThatAreBooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		rt := newTransport(t, store, answer(200), outgoing.Options{}, sash.PerSecond(1))
		other := newTransport(t, store, answer(429, "Retry-After: 100"), outgoing.Options{Refuse: true}, sash.PerSecond(1000))
		ok(t, rt)
		start := time.Now()
		var group sync.WaitGroup
		var mu sync.Mutex
		var starts []time.Duration
		for range 20 {
			group.Go(func() {
				sent(t, rt)
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Since(start))
			})
		}
		time.Sleep(500 * time.Millisecond) // all are booked, and none has started
		if status, err := get(t.Context(), other); err != nil || status != http.StatusTooManyRequests {
			t.Fatal(status, err)
		}
		group.Wait()
		slices.Sort(starts)
		for i, d := range starts {
			if d < 100*time.Second || i > 0 && d+time.Microsecond < starts[i-1]+time.Second {
				t.Errorf("one was sent after %v, the one before after %v", d, starts[max(0, i-1)])
			}
		}
		if last := starts[19]; last > 140*time.Second {
			t.Errorf("the last of 20 was sent after %v: a cool-down of 100 s, a tenth of it at random, and 20 s", last)
		}
	})
}

// A store that does not book is asked again.
func TestWithoutBookingARequestAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, newStore(), answer(200), outgoing.Options{Algorithm: sash.FixedWindow}, sash.PerMinute(1))
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		ok(t, rt)
		start := time.Now()
		ok(t, rt)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// Unavailable decides on requests that have been charged, too, when the store fails while they wait.
func TestAStoreThatFailsWhileRequestsWait(t *testing.T) {
	for name, c := range map[string]struct {
		decides error
		served  int64
	}{"sent": {nil, 5}, "refused": {errDown, 1}} {
		bubble(t, name, func(t *testing.T) {
			store, served := storetest.NewFaulty(newStore()), atomic.Int64{}
			rt := newTransport(t, store, answer(200), outgoing.Options{
				Unavailable: func(*http.Request, outgoing.Call, error) error { return c.decides },
			}, sash.Every(1, time.Second))
			var group sync.WaitGroup
			for range 5 {
				group.Go(func() {
					if _, err := get(t.Context(), rt); err == nil {
						served.Add(1)
					} else if !errors.Is(err, errDown) {
						t.Error(err)
					}
				})
			}
			time.Sleep(time.Second / 2)
			store.Fail(errDown)
			group.Wait()
			if n := served.Load(); n != c.served {
				t.Errorf("%d of 5 requests were served, want %d", n, c.served)
			}
		})
	}
}

// A request that the store has admitted is not sent when the API has refused another one meanwhile. It gives its charge
// back where it may wait.
func TestARequestIsHeldBackUntilItIsSent(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := storetest.NewFaulty(newStore())
			store.Slow(100 * time.Millisecond)
			api := &scripted{answers: []http.HandlerFunc{answer(429, "Retry-After: 5"), answer(200)}}
			rt := newTransport(t, store, api.ServeHTTP, outgoing.Options{Refuse: refuse}, sash.PerMinute(10))
			start := time.Now()
			var group sync.WaitGroup
			group.Go(func() {
				if status, err := get(t.Context(), rt); err != nil || status != http.StatusTooManyRequests {
					t.Error(status, err)
				}
			})
			time.Sleep(50 * time.Millisecond)
			status, err := get(t.Context(), rt)
			var cool *outgoing.CoolDownError
			took := time.Since(start) // 5 s, a tenth more as the spread, and ten calls of the store
			if refuse != errors.As(err, &cool) || !refuse && (status != http.StatusOK || took < 5*time.Second || took > 6500*time.Millisecond) {
				t.Errorf("refuse %v: %d, %v after %v", refuse, status, err, took)
			}
			group.Wait()
		})
	}
}

// 30 requests a second to an API of 20 a second, whose callers leave after a second, from one process and from four: nearly all
// of the 20 are sent in each second.
func TestCallersWhoLeaveStarveNobody(t *testing.T) {
	for _, processes := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(nil)
			var transports []*outgoing.Transport
			for range processes {
				transports = append(transports, newRoundTripper(t, store, outgoing.Everything("api"), &outgoing.Options{Base: handled(answer(200))}, sash.PerSecond(20)))
			}
			var sent atomic.Int64
			var group sync.WaitGroup
			for i := range 25 * 30 {
				group.Go(func() {
					ctx, leave := context.WithCancel(t.Context())
					defer time.AfterFunc(time.Second, leave).Stop()
					if _, err := get(ctx, transports[i%processes]); err == nil {
						sent.Add(1)
					} else if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				time.Sleep(time.Second / 30)
			}
			group.Wait()
			t.Logf("%d processes: %d of 500 requests", processes, sent.Load())
			if sent.Load() < 475 {
				t.Errorf("%d processes: %d of 500 requests", processes, sent.Load())
			}
		})
	}
}
