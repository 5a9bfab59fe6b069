package outgoing_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// tighten lowers the limit of an API, and forgets how many requests it refused.
func (s *strict) tighten(units int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units, s.tooFew = units, 0
}

func (s *strict) refusals() int {
	refused, _ := s.counts()
	return refused
}

func (s *strict) counts() (refused, served int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tooFew, s.served
}

// A tightening is an API that lowers its limit from 25 to 10 in 5 s, for three processes with workers each. A request takes
// its way, and up to half of that longer.
type tightening struct {
	fields  bool // the API states its limit
	workers int
	way     time.Duration
	after   time.Duration // from the start
}

// run returns how many requests were refused and served in the minute after.
func (c tightening) run(t *testing.T) (refused, served int) {
	synctest.Test(t, func(t *testing.T) {
		store, api := newStore(), &strict{units: 25, window: 5 * time.Second, jitter: c.way / 2, fields: c.fields}
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 3 {
			rt := newTransport(t, store, func(w http.ResponseWriter, req *http.Request) {
				time.Sleep(c.way / 2)
				api.ServeHTTP(w, req)
				time.Sleep(c.way / 2)
			}, outgoing.Options{Spread: learnt}, sash.Every(25, 5*time.Second))
			for range c.workers {
				group.Go(func() {
					for {
						if _, err := get(ctx, rt); err != nil {
							if ctx.Err() == nil {
								t.Error(err)
							}
							return
						}
					}
				})
			}
		}
		time.Sleep(c.after)
		api.tighten(10)
		_, before := api.counts()
		time.Sleep(time.Minute)
		refused, served = api.counts()
		served -= before
		stop()
		group.Wait()
	})
	return refused, served
}

// Requests that wait start at least the longest way apart, and at most half as far as evenly, so few are on their way when the first is
// refused: whenever the API lowers its limit. The bounds are those of docs/algorithms.md: two refusals for each process with fields, and
// four in the fleet without. There are more where more than one is on its way, and in a queue that is longer than a window.
func TestALowerLimitIsLearntFromRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		tightening
		most int
	}{
		"fields":                {tightening{fields: true, way: 5 * time.Millisecond}, 6},
		"fields, a long way":    {tightening{fields: true, way: 50 * time.Millisecond}, 6},
		"no fields":             {tightening{way: 5 * time.Millisecond}, 4},
		"no fields, a long way": {tightening{way: 50 * time.Millisecond}, 4},
		"fields, R is 3":        {tightening{fields: true, way: 300 * time.Millisecond}, 10},
		"no fields, R is 3":     {tightening{way: 300 * time.Millisecond}, 16}, // four for each on its way, and a round more
		"fields, a queue":       {tightening{fields: true, way: 5 * time.Millisecond, workers: 50}, 35},
		"no fields, a queue":    {tightening{way: 5 * time.Millisecond, workers: 50}, 50},
	} {
		best, worst, least := c.most, 0, 120
		for i := range 10 {
			c.workers, c.after = max(c.workers, 4), 17*time.Second+time.Duration(i)*500*time.Millisecond
			refused, served := c.run(t)
			best, worst, least = min(best, refused), max(worst, refused), min(least, served)
			if refused > c.most {
				t.Errorf("%s: the API refused %d requests, more than %d", name, refused, c.most)
			}
			if served < 60 {
				t.Errorf("%s: %d requests were served in a minute, and 120 are allowed", name, served)
			}
		}
		t.Logf("%s: %d to %d refused, and at least %d served in a minute, of 120 at most", name, best, worst, least)
	}
}

// refusing returns an API that refuses some requests, from the n-th on.
func refusing(n, some int, fields ...string) http.HandlerFunc {
	return refusingOf(answer(http.StatusOK), n, some, fields...)
}

func refusingOf(api http.HandlerFunc, n, some int, fields ...string) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		n--
		refuse := n <= 0 && n > -some
		mu.Unlock()
		if refuse {
			answer(http.StatusTooManyRequests, fields...)(w, req)
			return
		}
		api(w, req)
	}
}

// burst sends requests until one is not sent, and returns how many were.
func burst(t *testing.T, rt http.RoundTripper) (n int) {
	t.Helper()
	for {
		if _, err := get(t.Context(), rt); errors.Is(err, sash.ErrLimited) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// Fields of another quota, such as that of a day, do not say why a request was refused. Those of a limit do.
func TestARefusalWithFieldsOfAnotherQuotaLowersTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		fields http.Header
		sent   int // by another process, after the cool-down
	}{
		"a day":                {http.Header{"X-Ratelimit-Limit": {"10000"}, "X-Ratelimit-Remaining": {"9000"}}, 0},
		"a day, by its window": {http.Header{"Ratelimit-Policy": {`"day";q=10000;w=86400`}, "Ratelimit": {`"day";r=9000;t=40000`}}, 0},
		"tokens":               {http.Header{"Ratelimit-Policy": {`"t";q=10000;w=60;qu="tokens"`}, "Ratelimit": {`"t";r=9000;t=4`}}, 0},
		"no more than a limit": {http.Header{"X-Ratelimit-Limit": {"40"}}, 0},
		"room":                 {http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"59"}}, 58},
	} {
		bubble(t, name, func(t *testing.T) {
			store, count := newStore(), refusing(41, 2)
			api := func(w http.ResponseWriter, req *http.Request) {
				maps.Copy(w.Header(), c.fields)
				count(w, req)
			}
			here := newTransport(t, store, api, outgoing.Options{Refuse: true}, sash.PerMinute(100))
			there := newTransport(t, store, api, outgoing.Options{Refuse: true}, sash.PerMinute(100))
			for _, want := range []int{41, 1} {
				if n := burst(t, here); n != want {
					t.Fatalf("%d requests were sent, the last of which was refused; want %d", n, want)
				}
				time.Sleep(3 * time.Second) // the cool-down is over
			}
			if n := burst(t, there); n != c.sent {
				t.Errorf("another process sent %d requests more, want %d", n, c.sent)
			}
		})
	}
}

// Refusals that agree lower a limit to what went through, in all processes, for a sixteenth of the window and 15 s at least.
// Then it rises in as long again, and when refusals go on it is held longer.
func TestRefusalsThatAgreeLowerALimit(t *testing.T) {
	for name, c := range map[string]struct {
		limit    sash.Limit
		refused  int    // requests, from the 41st on
		fields   string // of the refusals
		keep     bool
		pause    time.Duration // after the first cool-down
		sent     int           // by another process after it, with the second refusal if there is one
		then     time.Duration
		sentThen int // by this process, when the window is empty
	}{
		"one is a cool-down":           {limit: sash.PerMinute(100), refused: 1, sent: 59, then: time.Minute, sentThen: 100},
		"one that asks for the window": {limit: sash.PerMinute(100), refused: 1, fields: "Retry-After: 15", pause: 14 * time.Second},
		"two":                          {limit: sash.PerMinute(100), refused: 2, sent: 1, then: 15 * time.Second},
		"two, when it has risen":       {limit: sash.PerMinute(100), refused: 2, sent: 1, then: 91 * time.Second, sentThen: 100},
		"two of an hour":               {limit: sash.PerHour(100), refused: 2, sent: 1, then: 3 * time.Minute},
		"two of an hour, a part later": {limit: sash.PerHour(100), refused: 2, sent: 1, then: 8 * time.Minute, sentThen: 58},
		"two that lower nothing":       {limit: sash.PerMinute(100), refused: 2, keep: true, sent: 1, then: 3 * time.Second, sentThen: 58},
	} {
		bubble(t, name, func(t *testing.T) {
			var fields []string
			if c.fields != "" {
				fields = append(fields, c.fields)
			}
			store, api := newStore(), refusing(41, c.refused, fields...)
			opts := outgoing.Options{Refuse: true, KeepLimits: c.keep, Spread: -1}
			here, there := newTransport(t, store, api, opts, c.limit), newTransport(t, store, api, opts, c.limit)
			if n := burst(t, here); n != 41 {
				t.Fatalf("%d requests were sent, the last of which was refused", n)
			}
			time.Sleep(2*time.Second + c.pause)
			if n := burst(t, there); n != c.sent {
				t.Errorf("another process sent %d requests, want %d", n, c.sent)
			}
			time.Sleep(c.then)
			if n := burst(t, here); n != c.sentThen {
				t.Errorf("%v later this process sent %d requests, want %d", c.then, n, c.sentThen)
			}
		})
	}
}

// busy returns how many requests an API serves a fleet that sends as fast as it may, and how many it refuses because its
// limit is reached. Another one is refused for no reason.
func busy(t *testing.T, limit sash.Limit, lasts time.Duration, stray int, fields ...string) (served, refused int) {
	synctest.Test(t, func(t *testing.T) {
		store, api := newStore(), &strict{units: int(limit.Units), window: limit.Window, jitter: time.Millisecond}
		base := refusingOf(api.ServeHTTP, stray, 1, fields...)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(lasts-time.Millisecond, stop)
		var group sync.WaitGroup
		for range 3 {
			rt := newTransport(t, store, base, outgoing.Options{Spread: 2 * time.Millisecond}, limit)
			for range 8 {
				group.Go(func() {
					for ctx.Err() == nil {
						_, _ = get(ctx, rt)
					}
				})
			}
		}
		group.Wait()
		refused, served = api.counts()
	})
	return served, refused
}

// One refusal that has nothing to do with a limit costs its cool-down.
func TestOneStrayRefusalCostsItsCoolDown(t *testing.T) {
	for _, c := range []struct {
		limit  sash.Limit
		lasts  time.Duration
		fields []string
	}{
		{sash.PerHour(5000), time.Hour, []string{"Retry-After: 1"}},
		{sash.PerSecond(50), 125 * time.Second, []string{"Retry-After: 1"}},
		{sash.PerSecond(50), 125 * time.Second, nil},
	} {
		all, _ := busy(t, c.limit, c.lasts, 1<<30)
		for _, stray := range []int{1, 49, 50, 1300, 4000} {
			served, refused := busy(t, c.limit, c.lasts, stray, c.fields...)
			t.Logf("%v %v, request %d: %d served of %d, %d refused", c.limit, c.fields, stray, served, all, refused)
			if served < all-100 || refused > 0 {
				t.Errorf("%v %v, request %d: %d served of %d, %d refused", c.limit, c.fields, stray, served, all, refused)
			}
		}
	}
}
