package outgoing_test

import (
	"errors"
	"maps"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
	"example.com/sash/redistest"
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

// Three processes with four workers each, and an API that lowers its limit from 25 to 10 in 5 s. A request takes 5 ms.
// Twelve are on their way together when they are not paced, and what is on its way when the first is refused cannot be
// held back.
func tightened(t *testing.T, fields bool, opts outgoing.Options) (refused, served int) {
	synctest.Test(t, func(t *testing.T) {
		store, api := newStore(), &strict{units: 25, window: 5 * time.Second, fields: fields}
		stop := make(chan struct{})
		var group sync.WaitGroup
		for range 3 {
			rt := newTransport(t, store, func(w http.ResponseWriter, req *http.Request) {
				time.Sleep(2500 * time.Microsecond)
				api.ServeHTTP(w, req)
				time.Sleep(2500 * time.Microsecond)
			}, opts, sash.Every(25, 5*time.Second))
			for range 4 {
				group.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := get(t.Context(), rt); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		time.Sleep(17 * time.Second)
		api.tighten(10)
		_, before := api.counts()
		time.Sleep(time.Minute)
		refused, served = api.counts()
		served -= before
		close(stop)
		group.Wait()
	})
	return refused, served
}

func TestALowerLimitIsLearntFromRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		fields bool
		pace   bool
		most   int
	}{
		"fields, paced":    {true, true, 6},
		"no fields, paced": {false, true, 5},
		"fields":           {true, false, 12}, // as many are on their way when the first is refused
		"no fields":        {false, false, 12 + 5},
	} {
		refused, served := tightened(t, c.fields, outgoing.Options{Pace: c.pace})
		t.Logf("%s: %d refused and %d served in a minute, of 120 at most", name, refused, served)
		if refused > c.most {
			t.Errorf("%s: the API refused %d requests, more than %d", name, refused, c.most)
		}
		if served < 60 {
			t.Errorf("%s: %d requests were served in a minute, and 120 are allowed", name, served)
		}
	}
}

// refusing returns an API that refuses a single request, the n-th.
func refusing(n int) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if n--; n == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
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
		"room":                 {http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"59"}}, 59},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, count := newStore(), refusing(41)
				api := func(w http.ResponseWriter, req *http.Request) {
					maps.Copy(w.Header(), c.fields)
					count(w, req)
				}
				here := newTransport(t, store, api, outgoing.Options{Mode: outgoing.Refuse}, sash.PerMinute(100))
				there := newTransport(t, store, api, outgoing.Options{Mode: outgoing.Refuse}, sash.PerMinute(100))
				if n := burst(t, here); n != 41 {
					t.Fatalf("%d requests were sent, the last of which was refused", n)
				}
				time.Sleep(2 * time.Second) // the cool-down is over
				if n := burst(t, there); n != c.sent {
					t.Errorf("another process sent %d requests more, want %d", n, c.sent)
				}
			})
		})
	}
}

func TestALimitIsHeldAtWhatWentThroughAndRisesSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, api := newStore(), refusing(41)
		here := newTransport(t, store, api, outgoing.Options{Mode: outgoing.Refuse}, sash.PerMinute(100))
		there := newTransport(t, store, api, outgoing.Options{Mode: outgoing.Refuse}, sash.PerMinute(100))
		if n := burst(t, here); n != 41 {
			t.Fatalf("%d requests were sent, the last of which was refused", n)
		}
		time.Sleep(2 * time.Second) // the cool-down is over
		if n := burst(t, there); n != 0 {
			t.Errorf("another process sent %d requests more than went through", n)
		}
		for _, c := range []struct {
			pause       time.Duration
			least, most int
		}{{time.Minute, 40, 40}, {5 * time.Minute, 40, 40}, {6 * time.Minute, 50, 62}, {10 * time.Minute, 100, 100}} {
			time.Sleep(c.pause)
			if n := burst(t, there); n < c.least || n > c.most {
				t.Errorf("%v later another process sent %d requests, want %d to %d", c.pause, n, c.least, c.most)
			}
			time.Sleep(time.Minute)
			if n := burst(t, here); n < c.least || n > c.most+10 {
				t.Errorf("a minute after that this process sent %d requests, want %d to %d", n, c.least, c.most+10)
			}
		}
	})
}

// A refusal when little of the window is used has another reason than the window.
func TestAnEarlyRefusalDoesNotCloseTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, newStore(), refusing(3), outgoing.Options{Mode: outgoing.Refuse}, sash.PerMinute(100))
		sent := burst(t, rt)
		time.Sleep(2 * time.Second)
		if sent += burst(t, rt); sent != 100 {
			t.Errorf("%d requests were sent in the minute, want all 100", sent)
		}
	})
}

// The same with processes of their own and a real Redis.
func TestAFleetLearnsALowerLimit(t *testing.T) {
	if *arrivalFor < time.Minute {
		t.Skip("make test-arrival runs it")
	}
	for name, c := range map[string]struct {
		fields, pace bool
		most         int
	}{
		"fields, paced":    {true, true, 6},
		"no fields, paced": {false, true, 5},
		"fields":           {true, false, 12},
		"no fields":        {false, false, 12 + 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &strict{units: 25, window: 5 * time.Second, fields: c.fields}
			job := errand{Redis: redistest.Start(t).Addr(), API: api.start(t), Workers: 4, For: 40 * time.Second, Pace: c.pace,
				Limit: sash.Every(25, 5*time.Second), Mode: outgoing.Wait}
			before := 0
			time.AfterFunc(13*time.Second, func() { before = api.refusals(); api.tighten(10) })
			start(t, job, job, job)
			t.Logf("%d refused before, %d afterwards", before, api.refusals())
			if n := api.refusals(); n > c.most {
				t.Errorf("the API refused %d requests, more than %d", n, c.most)
			}
		})
	}
}
