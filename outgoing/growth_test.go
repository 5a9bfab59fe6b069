package outgoing_test

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
	"example.com/sash/storetest"
)

// A scripted API sends its responses in turn, the last one again and again.
type scripted struct {
	mu      sync.Mutex
	answers []http.HandlerFunc
	calls   int
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[min(s.calls, len(s.answers)-1)](w, req)
	s.calls++
}

// coolDown returns what is left of a transport's cool-down. It sends nothing unless there is none.
func coolDown(t *testing.T, rt http.RoundTripper) time.Duration {
	t.Helper()
	_, err := get(t.Context(), rt)
	var cool *outgoing.CoolDownError
	if err != nil && !errors.As(err, &cool) {
		t.Fatal(err)
	}
	if cool == nil {
		return 0
	}
	return cool.RetryAfter
}

// pauses sends n requests, each as soon as its cool-down allows, by the transports in turn, and returns the
// cool-down after each response. It does not look after a success, because that would send another request.
func pauses(t *testing.T, n int, fleet ...http.RoundTripper) (paused []time.Duration) {
	t.Helper()
	for i := range n {
		rt := fleet[i%len(fleet)]
		status, err := get(t.Context(), rt)
		if err != nil {
			t.Fatalf("request %d was not sent: %v", i, err)
		}
		d := time.Duration(0)
		if status == http.StatusTooManyRequests || status == http.StatusForbidden {
			d = coolDown(t, rt)
		}
		paused = append(paused, d)
		time.Sleep(d + 200*time.Millisecond) // beyond the latency between processes
	}
	return paused
}

// about reports whether each is at most the wanted number of seconds, and not much less: a tenth each time that it grew.
func about(paused []time.Duration, seconds ...float64) bool {
	return slices.EqualFunc(paused, seconds, func(d time.Duration, s float64) bool {
		want := time.Duration(s * float64(time.Second))
		return d <= want && d >= want*65/100 // which is four times a tenth
	})
}

func TestACoolDownWithoutATimeGrowsWhileRefusalsRepeat(t *testing.T) {
	refuse, served := answer(429), answer(200)
	for name, c := range map[string]struct {
		vendor string
		api    []http.HandlerFunc
		want   []float64
	}{
		"up to the longest":                     {"", []http.HandlerFunc{refuse}, []float64{1, 2, 4, 8, 16, 20, 20, 20}},
		"a success starts over":                 {"", []http.HandlerFunc{refuse, refuse, refuse, served, refuse, refuse}, []float64{1, 2, 4, 0, 1, 2}},
		"not found is a success":                {"", []http.HandlerFunc{refuse, refuse, answer(404), refuse}, []float64{1, 2, 0, 1}},
		"a failure of the server is no success": {"", []http.HandlerFunc{refuse, refuse, answer(500), refuse}, []float64{1, 2, 0, 4}},
		"Retry-After is kept":                   {"", []http.HandlerFunc{answer(429, "Retry-After: 3")}, []float64{3, 3, 3, 3}},
		"nothing grows from Retry-After":        {"", []http.HandlerFunc{answer(429, "Retry-After: 9"), refuse, refuse}, []float64{9, 1, 2}},
		"a Retry-After of zero grows":           {"", []http.HandlerFunc{answer(429, "Retry-After: 0")}, []float64{.1, .2, .4, .8, 1.6}},
		"one in the past grows":                 {"", []http.HandlerFunc{answer(429, "Retry-After: Mon, 01 Jan 1990 00:00:00 GMT")}, []float64{.1, .2, .4}},
		"a secondary limit":                     {"github", []http.HandlerFunc{says(403, githubSecondary)}, []float64{60, 120, 240}},
		"everywhere":                            {"discord", []http.HandlerFunc{answer(429, "X-RateLimit-Global: true")}, []float64{1, 2, 4}},
	} {
		for processes := 1; processes <= 2; processes++ {
			if processes == 2 && (name == "a success starts over" || name == "not found is a success") {
				continue // unknown to the other process: see the next test
			}
			bubble(t, name, func(t *testing.T) {
				store, api := newStore(), &scripted{answers: c.api}
				opts := outgoing.Options{Refuse: true, MaxCoolDown: 20 * time.Second}
				opts.Profile = vendor(t, c.vendor)
				if c.vendor == "github" {
					opts.MaxCoolDown = time.Hour
				}
				var fleet []http.RoundTripper
				for range processes {
					fleet = append(fleet, newTransport(t, store, api.ServeHTTP, opts, sash.PerHour(5000)))
				}
				if paused := pauses(t, len(c.want), fleet...); !about(paused, c.want...) {
					t.Errorf("%d processes pauses away for %v, want about %v s", processes, paused, c.want)
				}
			})
		}
	}
}

// Requests in flight together count as one refusal: the cool-down grows once.
func TestACoolDownGrowsOnceForRequestsRefusedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, refuse := newStore(), make(chan struct{})
		transport := func(atOnce bool) http.RoundTripper {
			return newTransport(t, store, func(w http.ResponseWriter, _ *http.Request) {
				<-refuse
				w.WriteHeader(http.StatusTooManyRequests)
			}, outgoing.Options{Refuse: atOnce}, sash.PerHour(5000))
		}
		fleet := []http.RoundTripper{transport(false), transport(false), transport(false)}
		for _, want := range []float64{1, 2, 4} {
			var group sync.WaitGroup
			for i := range 30 {
				group.Go(func() {
					if status, err := get(t.Context(), fleet[i%3]); err != nil || status != http.StatusTooManyRequests {
						t.Error(status, err)
					}
				})
			}
			time.Sleep(4 * time.Second) // all have waited for the last cool-down
			for range 30 {
				refuse <- struct{}{}
			}
			group.Wait()
			if d := coolDown(t, transport(true)); !about([]time.Duration{d}, want) {
				t.Errorf("the store says %v, want about %v s", d, want)
			}
		}
	})
}

var errDown = errors.New("connection refused")

// downStore returns a store that fails.
func downStore() *storetest.Faulty {
	store := storetest.NewFaulty(newStore())
	store.Fail(errDown)
	return store
}

func TestWaitersReturnAfterTheCoolDownAtDifferentTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		first := newTransport(t, store, answer(429, "Retry-After: 100"), outgoing.Options{}, sash.PerHour(5000))
		sent(t, first)
		start, took := time.Now(), make(chan time.Duration)
		for range 20 {
			rt := newTransport(t, store, answer(200), outgoing.Options{}, sash.PerHour(5000))
			go func() {
				sent(t, rt)
				took <- time.Since(start)
			}()
		}
		different := map[time.Duration]bool{}
		for range 20 {
			d := <-took
			if different[d] = true; d < 100*time.Second || d > 110*time.Second {
				t.Errorf("one came back after %v", d)
			}
		}
		if len(different) < 10 {
			t.Errorf("20 workers came back at %d different times", len(different))
		}
	})
}

func TestARequestAboveWhatTheAPIHasLeftIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := int64(1)
		route := func(*http.Request) (outgoing.Call, error) { return outgoing.Call{Key: "api", Cost: cost}, nil }
		rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Refuse: true, Base: handled(answer(200, "X-RateLimit-Remaining: 39"))}, sash.PerMinute(120))
		ok(t, rt)
		cost = 100
		if d := coolDown(t, rt); d != 30*time.Second { // from 40 to 100, at 2 a second
			t.Errorf("it could be sent in %v", d)
		}
	})
}

// A store that answers for another, which is down, has not counted the usage of all processes. The transport
// learns nothing from the difference to the API's count, and takes no cool-down from it.
func TestNothingIsLearntFromAStoreThatDidNotCount(t *testing.T) {
	for name, mode := range map[string]failover.Mode{"open": failover.Open, "local": failover.Local} {
		bubble(t, name, func(t *testing.T) {
			down := downStore()
			store := must(failover.New(down, &failover.Options{
				Modes: failover.Modes{Rules: []failover.Rule{{Mode: mode}}},
				Local: memstore.New(nil), Instances: func() int { return 2 },
			}))(t)
			api := &scripted{answers: []http.HandlerFunc{answer(200)}}
			rt := newTransport(t, store, api.ServeHTTP, outgoing.Options{Refuse: true}, sash.PerDay(5000))
			calls := func(says http.HandlerFunc) {
				api.answers[0] = says
				for range 20 {
					sent(t, rt)
				}
			}
			calls(answer(200, "X-RateLimit-Remaining: 3"))
			down.Fail(nil)
			time.Sleep(time.Minute) // until the store is probed
			calls(answer(200))
			down.Fail(errDown)
			refusing := newTransport(t, store, answer(429, "Retry-After: 30"), outgoing.Options{Refuse: true}, sash.PerHour(5000))
			sent(t, refusing)
			if d := coolDown(t, refusing); d != 30*time.Second {
				t.Errorf("a process keeps to its own cool-down without the store: %v", d)
			}
		})
	}
}
