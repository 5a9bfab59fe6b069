package outgoing_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/outgoing"
	"example.com/sash/redisstore"
)

func TestWindowsAreLongerInTheStoreAndNowhereElse(t *testing.T) {
	for algorithm, longer := range map[sash.Algorithm]int64{
		sash.SlidingLog: 300_000, sash.SortedSetLog: 300_000, sash.SlidingCounter: 0, sash.FixedWindow: 0, sash.GCRA: 0,
	} {
		limits := []sash.Limit{sash.Every(2, 5*time.Second), sash.PerMinute(10)}
		if algorithm.Exact() {
			limits = append(limits, sash.PerCalendar(100, sash.CalendarDay, nil))
		}
		inner := newStore()
		var got []driver.Limit // of the first decision
		store := over(inner, func(ctx context.Context, b *driver.Batch) error {
			if op := &b.Ops[0]; op.Kind == driver.Charge && got == nil {
				got = op.Policy.Limits
			}
			return inner.Do(ctx, b)
		})
		rt := newTransport(t, store, answer(200), outgoing.Options{
			Refuse: true, Spread: 300 * time.Millisecond, Algorithm: algorithm,
		}, limits...)
		ok(t, rt)
		if got[0].Window != 5_000_000+longer || got[1].Window != 60_000_000+longer || algorithm.Exact() && got[2].Period != driver.Day {
			t.Errorf("%v: the store has the limits %v", algorithm, got)
		}
		var limited *sash.LimitedError
		for range 5 { // approximate algorithms may admit more than 2
			if _, err := get(t.Context(), rt); errors.As(err, &limited) {
				break
			}
		}
		if limited == nil || limited.Limit.String() != "2/5s" || limited.Result.Limits()[1].Limit.String() != "10/1m" {
			t.Errorf("%v: the caller has the error %v", algorithm, limited)
		}
	}
}

// The API counts requests when they arrive, up to 300 ms after they were sent. Workers send as fast as they may.
func TestASpreadThatIsKnownIsExact(t *testing.T) {
	const jitter = 300 * time.Millisecond
	refused := func(spread time.Duration) (n int) {
		synctest.Test(t, func(t *testing.T) {
			store, api := newStore(), &strict{units: 25, window: 5 * time.Second, jitter: jitter}
			begin := time.Now()
			fleet(t, 3, 4, 100, func() http.RoundTripper {
				return newTransport(t, store, api.ServeHTTP, outgoing.Options{Spread: spread}, sash.Every(25, 5*time.Second))
			})
			if most := 1200 / 25 * (5*time.Second + jitter) * 11 / 10; spread == jitter && time.Since(begin) > most {
				t.Errorf("1200 requests took %v", time.Since(begin))
			}
			n = api.tooFew
		})
		return n
	}
	if n := refused(jitter); n != 0 {
		t.Errorf("the API refused %d requests", n)
	}
	if n := refused(-1); n == 0 {
		t.Error("without a spread nothing was refused either, so this test shows nothing")
	}
	if n := refused(learnt); n > 0 {
		t.Errorf("with the spread that was learnt the API refused %d requests", n)
	}
}

// overRedis sends requests to an API for a time, by four workers of each of three processes, for which transports stand that
// share only a Redis. It returns how many the API served to each, and by how much the times differ that requests took.
func overRedis(t *testing.T, api *strict, lasts time.Duration, cold bool) (served *[3]atomic.Int64, differ time.Duration) {
	t.Helper()
	redis, addr, limit := redistest.Start(t).Addr(), api.start(t), sash.Every(int64(api.units), api.window)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	served = new([3]atomic.Int64)
	var took stopwatch
	var group sync.WaitGroup
	for i := range served {
		base := http.DefaultTransport.(*http.Transport).Clone()
		base.DisableKeepAlives = cold // each request has a connection of its own
		base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		store := redisstore.New(redistest.Scripter(redistest.Dial(redis)), nil)
		rt := newRoundTripper(t, store, outgoing.Everything("api"), &outgoing.Options{Base: took.over(base)}, limit)
		for range 4 {
			group.Go(func() {
				for ctx.Err() == nil {
					status, err := get(ctx, rt)
					if err != nil {
						if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						return
					}
					if status == http.StatusOK {
						served[i].Add(1)
					}
				}
			})
		}
	}
	group.Wait()
	return served, took.longest - took.shortest
}

// A stopwatch records what requests take, after they were sent.
type stopwatch struct {
	mu                sync.Mutex
	shortest, longest time.Duration // guarded by mu
}

func (s *stopwatch) over(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		sent := time.Now()
		res, err := base.RoundTrip(req)
		d := time.Since(sent)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.longest = max(s.longest, d); s.shortest == 0 || d < s.shortest {
			s.shortest = d
		}
		return res, err
	})
}

// arrivalFor is how long each fleet of TestNoRequestArrivesTooEarly sends: a minute in make test-arrival.
var arrivalFor = flag.Duration("arrival", 16*time.Second, "how long each fleet of the arrival tests sends requests")

// An API that counts each request when it arrives refuses none, however long and unequal the ways to it are, and nearly
// everything is sent that windows as much longer as the ways differ have room for.
func TestNoRequestArrivesTooEarly(t *testing.T) {
	const units, window = 25, 5 * time.Second
	long, tolerated := *arrivalFor >= time.Minute, 0
	if !long {
		tolerated = 1 // other tests run meanwhile, and a process that gets no processor is late
	}
	for _, cold := range []bool{false, true} {
		for _, jitter := range []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
			if !long && jitter != 100*time.Millisecond {
				continue // in make test-arrival
			}
			t.Run(fmt.Sprintf("cold %v, jitter %v", cold, jitter), func(t *testing.T) {
				t.Parallel()
				api := &strict{units: units, window: window, jitter: jitter}
				each, differ := overRedis(t, api, *arrivalFor, cold)
				refused, served := api.counts()
				spread := jitter
				if cold {
					spread *= 2
				}
				seen := max(spread, differ) // a machine without a free core makes ways differ by more than the jitter
				allowed := units * arrivalFor.Seconds() / (window + seen).Seconds()
				t.Logf("%d served, %.1f %% of %.0f (the ways differ by %v, of which %v are the API's: %.1f %%); %d refused",
					served, 100*float64(served)/allowed, allowed, seen, spread,
					100*float64(served)/(units*arrivalFor.Seconds()/(window+spread).Seconds()), refused)
				if refused > tolerated {
					t.Errorf("the API refused %d requests", refused)
				}
				for i := range each {
					if n := each[i].Load(); float64(n) < allowed/12 {
						t.Errorf("one of three processes sent %d requests of %d", n, served)
					}
				}
				if float64(served) < 0.95*allowed {
					t.Errorf("%d requests were served, less than 95 %% of %.0f", served, allowed)
				}
			})
		}
	}
}

// The same with a real Redis, for longer in make test-arrival.
func TestAFleetLearnsALowerLimit(t *testing.T) {
	for fields, most := range map[bool]int{true: 6, false: 5} {
		t.Run(fmt.Sprintf("fields %v", fields), func(t *testing.T) {
			t.Parallel()
			lasts := 16 * time.Second
			if *arrivalFor >= time.Minute {
				lasts = 40 * time.Second
			}
			api := &strict{units: 25, window: 5 * time.Second, fields: fields}
			time.AfterFunc(lasts/3, func() { api.tighten(10) })
			overRedis(t, api, lasts, false)
			t.Logf("%d refused afterwards", api.refusals())
			if n := api.refusals(); n > most {
				t.Errorf("the API refused %d requests, more than %d", n, most)
			}
		})
	}
}
