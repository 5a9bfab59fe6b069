package outgoing_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

func shopify(h http.Header, limit, left int, _ time.Time) {
	h.Set("X-Shopify-Shop-Api-Call-Limit", fmt.Sprintf("%d/%d", limit-left, limit))
}

func discord(h http.Header, limit, left int, reset time.Time) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.3f", time.Until(reset).Seconds()))
}

func openai(h http.Header, limit, left int, reset time.Time) {
	h.Set("X-RateLimit-Limit-Requests", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining-Requests", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset-Requests", time.Until(reset).String())
}

func anthropic(h http.Header, limit, left int, reset time.Time) {
	h.Set("Anthropic-RateLimit-Requests-Limit", strconv.Itoa(limit))
	h.Set("Anthropic-RateLimit-Requests-Remaining", strconv.Itoa(left))
	h.Set("Anthropic-RateLimit-Requests-Reset", reset.UTC().Format(time.RFC3339))
}

func atlassian(h http.Header, limit, left int, reset time.Time) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", reset.UTC().Format("2006-01-02T15:04Z"))
}

func reddit(h http.Header, _, left int, reset time.Time) {
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left)+".0")
	h.Set("X-RateLimit-Reset", strconv.Itoa(int(time.Until(reset).Seconds())))
}

func huggingface(h http.Header, limit, left int, reset time.Time) {
	h.Set("RateLimit", fmt.Sprintf(`"api";r=%d;t=%d`, left, int(time.Until(reset).Seconds())))
	h.Set("RateLimit-Policy", fmt.Sprintf(`"fixed window";"api";q=%d;w=60`, limit))
}

func meta(h http.Header, limit, left int, _ time.Time) {
	h.Set("X-App-Usage", fmt.Sprintf(`{"call_count":%d,"total_time":1}`, 100-100*left/limit))
}

func draft11(h http.Header, limit, left int, reset time.Time) {
	h.Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=60`, limit))
	h.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, left, int(time.Until(reset).Seconds())))
}

// Another client has used most of the quota. The first response says so, and the API never has to refuse.
func TestTheUsageOfOthersIsLearntFromTheFirstResponse(t *testing.T) {
	for name, fields := range map[string]func(http.Header, int, int, time.Time){
		"": draft11, "github": github, "discord": discord, "shopify": shopify, "openai": openai, "anthropic": anthropic,
		"atlassian": atlassian, "reddit": reddit, "huggingface": huggingface, "meta": meta,
	} {
		t.Run("vendor "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := &upstream{limit: 100, window: time.Minute, fields: fields, status: http.StatusTooManyRequests}
				opts := outgoing.Options{Mode: outgoing.Refuse}
				if name != "" {
					opts.Profile = vendor(t, name)
				}
				rt := newTransport(t, newStore(), up.ServeHTTP, opts, sash.PerMinute(100))
				up.foreign(90)
				sent := 0
				for ; sent <= 10; sent++ {
					if _, err := get(t.Context(), rt); errors.Is(err, sash.ErrLimited) {
						break
					} else if err != nil {
						t.Fatal(err)
					}
				}
				if up.refused != 0 || sent != 10 {
					t.Errorf("%d calls were sent of 10 that were left, and the API refused %d", sent, up.refused)
				}
			})
		})
	}
}

// Responses of calls in flight together count each other. That is not the usage of other clients.
func TestOwnCallsInFlightAreNotTakenForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &upstream{limit: 100, window: time.Minute, fields: draft11, status: http.StatusTooManyRequests}
		arrive := make(chan struct{})
		rt := newTransport(t, newStore(), func(w http.ResponseWriter, req *http.Request) {
			<-arrive
			up.ServeHTTP(w, req)
		}, outgoing.Options{Mode: outgoing.Refuse}, sash.PerMinute(100))
		for range 4 {
			var group sync.WaitGroup
			for range 25 {
				group.Go(func() {
					if _, err := get(t.Context(), rt); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait() // all are charged, none is answered
			for range 25 {
				arrive <- struct{}{}
			}
			group.Wait()
		}
		if up.served != 100 || up.refused != 0 {
			t.Errorf("%d served and %d refused of 100", up.served, up.refused)
		}
	})
}

func TestALevelRisesOverOneWindowAndNeverAboveTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 4 // after the call
		rt := newTransport(t, newStore(), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(left))
		}, outgoing.Options{Mode: outgoing.Refuse}, sash.PerMinute(60))
		burst := func() (n int) {
			for {
				if _, err := get(t.Context(), rt); errors.Is(err, sash.ErrLimited) {
					return n
				} else if err != nil {
					t.Fatal(err)
				}
				left = 1_000_000 // the API says that there is plenty
				n++
			}
		}
		if n := burst(); n != 5 {
			t.Errorf("%d calls; the first answer said 4 more", n)
		}
		time.Sleep(30 * time.Second)
		if n := burst(); n != 30 {
			t.Errorf("%d more half a window later, want 30", n)
		}
		time.Sleep(2 * time.Minute)
		if n := burst(); n != 60 {
			t.Errorf("%d when all is forgotten, want the 60 that were configured", n)
		}
	})
}

func TestOneRefusalStopsAllProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		vendor string
		base   http.HandlerFunc
		want   time.Duration
	}{
		"429 with Retry-After":            {"", answer(429, "Retry-After: 30"), 30 * time.Second},
		"429 with a fraction":             {"shopify", answer(429, "Retry-After: 2.0"), 2 * time.Second},
		"429 with nothing":                {"", answer(429), time.Second},
		"429 with a reset":                {"discord", answer(429, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 1.470"), 1470 * time.Millisecond},
		"Retry-After wins over a reset":   {"", answer(429, "Retry-After: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 90"), 5 * time.Second},
		"github, secondary":               {"github", answer(403, "Retry-After: 60", "X-RateLimit-Remaining: 4000"), time.Minute},
		"github, secondary with nothing":  {"github", answer(429, "X-RateLimit-Remaining: 4000"), time.Minute},
		"github, exhausted":               {"github", answer(403, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1777896600", "Date: Mon, 04 May 2026 12:00:00 GMT"), 10 * time.Minute},
		"github, forbidden":               {"github", answer(403, "X-RateLimit-Remaining: 4000"), 0},
		"forbidden elsewhere":             {"", answer(403, "Retry-After: 60"), 0},
		"503 with Retry-After":            {"", answer(503, "Retry-After: 7"), 7 * time.Second},
		"503 with nothing":                {"", answer(503), 0},
		"200 with nothing left":           {"", answer(200, `RateLimit: "a";r=0;t=12`), 12 * time.Second},
		"200 with nothing left, no reset": {"", answer(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Limit: 5000"), time.Second},
		"in-flight requests all in use":   {"", answer(200, `RateLimit-Policy: "a";q=5;qu="concurrent-requests"`, `RateLimit: "a";r=0;t=12`), 0},
		"too long":                        {"", answer(429, "Retry-After: 99999999"), time.Hour},
		"too short":                       {"", answer(429, "Retry-After: 0"), 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, opts := newStore(), outgoing.Options{Mode: outgoing.Refuse}
				if c.vendor != "" {
					opts.Profile = vendor(t, c.vendor)
				}
				first := newTransport(t, store, c.base, opts, sash.PerHour(5000))
				if _, err := get(t.Context(), first); err != nil {
					t.Fatal(err)
				}
				opts.Profile = outgoing.Profile{}
				for _, rt := range []http.RoundTripper{first, newTransport(t, store, answer(200), opts, sash.PerHour(5000))} {
					_, err := get(t.Context(), rt)
					var cool *outgoing.CoolDownError
					if errors.As(err, &cool) != (c.want > 0) || c.want > 0 && cool.RetryAfter != c.want {
						t.Errorf("want %v: %v", c.want, err)
					}
				}
				time.Sleep(c.want)
				ok(t, newTransport(t, store, answer(200), opts, sash.PerHour(5000)))
			})
		})
	}
}

func TestCoolDownsOfManyWorkersDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, refuse := newStore(), make(chan struct{})
		var group sync.WaitGroup
		for i := range 20 { // in flight together, with slightly different times
			rt := newTransport(t, store, func(w http.ResponseWriter, _ *http.Request) {
				<-refuse
				answer(429, "Retry-After: "+strconv.Itoa(30-i%2))(w, nil)
			}, outgoing.Options{}, sash.PerHour(5000))
			group.Go(func() {
				if status, err := get(t.Context(), rt); status != 429 {
					t.Error(status, err)
				}
			})
		}
		synctest.Wait()
		close(refuse)
		group.Wait()
		remaining := func() time.Duration {
			rt := newTransport(t, store, answer(429, "Retry-After: 30"), outgoing.Options{Mode: outgoing.Refuse}, sash.PerHour(5000))
			_, err := get(t.Context(), rt)
			var cool *outgoing.CoolDownError
			if errors.As(err, &cool) {
				return cool.RetryAfter
			}
			return 0
		}
		if d := remaining(); d < 29*time.Second || d > 30*time.Second {
			t.Errorf("%v, want 29s or 30s", d)
		}
		time.Sleep(30 * time.Second)
		if d := remaining(); d != 0 {
			t.Errorf("%v after its end", d)
		}
		// That one was refused too: the second cool-down follows the first.
		if d := remaining(); d != 30*time.Second {
			t.Errorf("the next one lasts %v, want 30s", d)
		}
		time.Sleep(20 * time.Second)
		if d := remaining(); d != 10*time.Second {
			t.Errorf("%v, want 10s", d)
		}
	})
}

func TestWaitersReturnAfterTheCoolDownAtDifferentTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		first := newTransport(t, store, answer(429, "Retry-After: 100"), outgoing.Options{}, sash.PerHour(5000))
		if _, err := get(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		start, took := time.Now(), make(chan time.Duration)
		for range 20 {
			rt := newTransport(t, store, answer(200), outgoing.Options{}, sash.PerHour(5000))
			go func() {
				if _, err := get(t.Context(), rt); err != nil {
					t.Error(err)
				}
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
		rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Mode: outgoing.Refuse, Base: handled(answer(200, "X-RateLimit-Remaining: 39"))}, sash.PerMinute(120))
		ok(t, rt)
		cost = 100
		_, err := get(t.Context(), rt)
		var cool *outgoing.CoolDownError
		if !errors.As(err, &cool) || cool.RetryAfter != 30*time.Second { // from 40 to 100, at 2 a second
			t.Errorf("%v", err)
		}
	})
}
