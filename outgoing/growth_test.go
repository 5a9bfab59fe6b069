package outgoing_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/outgoing"
)

// A scripted API gives its answers in turn, the last one again and again.
type scripted struct {
	mu      sync.Mutex
	answers []http.HandlerFunc
	asked   int
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[min(s.asked, len(s.answers)-1)](w, req)
	s.asked++
}

// coolDown returns how long a transport stays away, without sending anything when it does.
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

// stayed sends n requests, each as soon as it may, by the transports in turn, and returns how long each answer
// kept the one that got it away. It does not look after a success, because that would send another.
func stayed(t *testing.T, n int, fleet ...http.RoundTripper) (lasted []time.Duration) {
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
		lasted = append(lasted, d)
		time.Sleep(d + 200*time.Millisecond) // other processes know an end to a tenth of a second
	}
	return lasted
}

// about tells whether each is at most the wanted number of seconds, and not much less: a tenth each time that
// it grew.
func about(lasted []time.Duration, seconds ...float64) bool {
	return slices.EqualFunc(lasted, seconds, func(d time.Duration, s float64) bool {
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
		"up to the longest":              {"", []http.HandlerFunc{refuse}, []float64{1, 2, 4, 8, 16, 20, 20, 20}},
		"a success begins anew":          {"", []http.HandlerFunc{refuse, refuse, refuse, served, refuse, refuse}, []float64{1, 2, 4, 0, 1, 2}},
		"not found is a success":         {"", []http.HandlerFunc{refuse, refuse, answer(404), refuse}, []float64{1, 2, 0, 1}},
		"a server's failure is none":     {"", []http.HandlerFunc{refuse, refuse, answer(500), refuse}, []float64{1, 2, 0, 4}},
		"Retry-After is kept to":         {"", []http.HandlerFunc{answer(429, "Retry-After: 3")}, []float64{3, 3, 3, 3}},
		"nothing grows from Retry-After": {"", []http.HandlerFunc{answer(429, "Retry-After: 9"), refuse, refuse}, []float64{9, 1, 2}},
		"a Retry-After of zero grows":    {"", []http.HandlerFunc{answer(429, "Retry-After: 0")}, []float64{.1, .2, .4, .8, 1.6}},
		"one in the past grows":          {"", []http.HandlerFunc{answer(429, "Retry-After: Mon, 01 Jan 1990 00:00:00 GMT")}, []float64{.1, .2, .4}},
		"a secondary limit":              {"github", []http.HandlerFunc{says(403, githubSecondary)}, []float64{60, 120, 240}},
		"everywhere":                     {"discord", []http.HandlerFunc{answer(429, "X-RateLimit-Global: true")}, []float64{1, 2, 4}},
	} {
		for processes := 1; processes <= 2; processes++ {
			if processes == 2 && (name == "a success begins anew" || name == "not found is a success") {
				continue // of another process it is not known: see the next test
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, api := newStore(), &scripted{answers: c.api}
					opts := outgoing.Options{Mode: outgoing.Refuse, MaxCoolDown: 20 * time.Second}
					if c.vendor != "" {
						opts.Profile = vendor(t, c.vendor)
					}
					if c.vendor == "github" {
						opts.MaxCoolDown = time.Hour
					}
					var fleet []http.RoundTripper
					for range processes {
						fleet = append(fleet, newTransport(t, store, api.ServeHTTP, opts, sash.PerHour(5000)))
					}
					if lasted := stayed(t, len(c.want), fleet...); !about(lasted, c.want...) {
						t.Errorf("%d processes stayed away for %v, want about %v s", processes, lasted, c.want)
					}
				})
			})
		}
	}
}

// Other processes do not know what was served, only that a cool-down was too short.
func TestASuccessIsKnownToTheProcessThatHadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, api := newStore(), &scripted{answers: []http.HandlerFunc{answer(429), answer(429), answer(200), answer(429)}}
		opts := outgoing.Options{Mode: outgoing.Refuse}
		here := newTransport(t, store, api.ServeHTTP, opts, sash.PerHour(5000))
		there := newTransport(t, store, api.ServeHTTP, opts, sash.PerHour(5000))
		if lasted := stayed(t, 3, here); !about(lasted, 1, 2, 0) {
			t.Fatal(lasted)
		}
		if lasted := stayed(t, 1, there); !about(lasted, 4) {
			t.Errorf("the other process stayed away for %v", lasted)
		}
		if lasted := stayed(t, 1, here); !about(lasted, 8) {
			t.Errorf("its cool-down is newer than the success, and grows by %v", lasted)
		}
	})
}

func TestACoolDownIsForgottenWhenItIsLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, newStore(), answer(429), outgoing.Options{Mode: outgoing.Refuse}, sash.PerHour(5000))
		for _, c := range []struct {
			pause time.Duration
			want  float64
		}{{0, 1}, {8 * time.Second, 2}, {8 * time.Second, 4}, {10 * time.Second, 1}} {
			time.Sleep(c.pause)
			if lasted := stayed(t, 1, rt); !about(lasted, c.want) {
				t.Errorf("after a pause of %v it stays away for %v, want %v s", c.pause, lasted, c.want)
			}
		}
	})
}

// Requests that were on their way together are refused once: the cool-down grows for one of them.
func TestACoolDownGrowsOnceForThoseRefusedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, refuse := newStore(), make(chan struct{})
		transport := func(mode outgoing.Mode) http.RoundTripper {
			return newTransport(t, store, func(w http.ResponseWriter, _ *http.Request) {
				<-refuse
				w.WriteHeader(http.StatusTooManyRequests)
			}, outgoing.Options{Mode: mode}, sash.PerHour(5000))
		}
		fleet := []http.RoundTripper{transport(outgoing.Wait), transport(outgoing.Wait), transport(outgoing.Wait)}
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
			if d := coolDown(t, transport(outgoing.Refuse)); !about([]time.Duration{d}, want) {
				t.Errorf("the store says %v, want about %v s", d, want)
			}
		}
	})
}

// What was sent before a cool-down and is served after it says nothing about it.
func TestASuccessThatWasSentBeforeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		rt := newTransport(t, newStore(), func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/slow" {
				<-slow
				return
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}, outgoing.Options{Mode: outgoing.Refuse}, sash.PerHour(5000))
		go func() {
			if err := getPath(t, rt, "/slow"); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if lasted := stayed(t, 1, rt); !about(lasted, 1) {
			t.Fatal(lasted)
		}
		close(slow)
		synctest.Wait()
		if lasted := stayed(t, 1, rt); !about(lasted, 2) {
			t.Errorf("it stays away for %v, want 2 s", lasted)
		}
	})
}

// cutOff is a store that fails from some time on.
type cutOff struct {
	driver.Store
	down bool
}

func (c *cutOff) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if c.down {
		return driver.Answer{}, errors.New("connection refused")
	}
	return c.Store.Decide(ctx, req)
}

func TestWithoutAStoreAProcessGrowsItsOwnCoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(*http.Request, outgoing.Call, error) error { return nil }
		rt := newTransport(t, &cutOff{down: true}, answer(429), outgoing.Options{Mode: outgoing.Refuse, Unavailable: open}, sash.PerHour(5000))
		if lasted := stayed(t, 4, rt); !about(lasted, 1, 2, 4, 8) {
			t.Errorf("it stays away for %v", lasted)
		}
	})
}

// A retry keeps to the cool-down as it is, not as it would be if it were the first.
func TestARetryIsNotMadeWhenTheCoolDownHasGrownTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &scripted{answers: []http.HandlerFunc{answer(429)}}
		rt := newTransport(t, newStore(), api.ServeHTTP,
			outgoing.Options{Retries: outgoing.Retries{Most: 100, Base: 1, MaxRetryAfter: 5 * time.Second}}, sash.PerHour(5000))
		status, err := get(t.Context(), rt)
		if err != nil || status != http.StatusTooManyRequests || api.asked != 4 {
			t.Errorf("%d, %v after %d requests; the fourth answer keeps away for 8 s, more than MaxRetryAfter", status, err, api.asked)
		}
	})
}
