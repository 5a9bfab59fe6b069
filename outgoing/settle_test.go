package outgoing_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/outgoing"
)

// A model is an API of a language model that logs the tokens it has served.
type model struct {
	mu     sync.Mutex
	log    []served
	tokens int64         // of each request, up to half more or less
	takes  time.Duration // each answer, at most
}

type served struct {
	at     time.Time
	tokens int64
}

func (m *model) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	tokens := m.tokens/2 + rand.Int64N(m.tokens)
	m.log = append(m.log, served{time.Now(), tokens})
	m.mu.Unlock()
	time.Sleep(upTo(m.takes))
	fmt.Fprintf(w, `{"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, tokens/3, tokens-tokens/3)
}

// most returns the most tokens and requests in any window, and the tokens of the whole log.
func (m *model) most(window time.Duration) (tokens, requests, all int64) {
	first, within := 0, int64(0)
	for i, s := range m.log {
		within += s.tokens
		for !m.log[first].at.After(s.at.Add(-window)) {
			within -= m.log[first].tokens
			first++
		}
		tokens, requests, all = max(tokens, within), max(requests, int64(i-first+1)), all+s.tokens
	}
	return tokens, requests, all
}

// Three processes hold an account under 100,000 tokens and 500 requests a minute, with estimates of four times the use.
func TestAFleetUsesWhatEstimatesGiveBack(t *testing.T) {
	const lasts = 10 * time.Minute
	used := func(settle func(outgoing.Usage) int64) (part float64) {
		synctest.Test(t, func(t *testing.T) {
			api, store := &model{tokens: 1000, takes: 2 * time.Second}, newStore()
			route := func(*http.Request) (outgoing.Call, error) {
				requests := sash.Subject{Key: "requests", Cost: 1, Limits: []sash.Limit{sash.PerMinute(500)}}
				return outgoing.Call{Key: "tokens", Cost: 4000, Settle: settle, Also: []sash.Subject{requests}}, nil
			}
			ctx, stop := context.WithTimeout(t.Context(), lasts)
			defer stop()
			var workers sync.WaitGroup
			for range 3 {
				rt := newRoundTripper(t, store, route, &outgoing.Options{Base: handled(api.ServeHTTP), Spread: -1}, sash.PerMinute(100_000))
				for range 20 {
					workers.Go(func() {
						for err := error(nil); err == nil; {
							err = whole(ctx, rt)
						}
					})
				}
			}
			workers.Wait()
			tokens, requests, all := api.most(time.Minute)
			if tokens > 100_000 || requests > 500 {
				t.Errorf("the API has served %d tokens and %d requests within a minute", tokens, requests)
			}
			part = float64(all) / (100_000 * lasts.Minutes())
			t.Logf("%.1f %% of the limit is used", 100*part)
		})
		return part
	}
	if used(outgoing.Usage.Total) < 0.85 {
		t.Error("too little is used with settlements")
	}
	if used(nil) > 0.3 {
		t.Error("as much is used without settlements, so this test shows nothing")
	}
}

// whole sends a request, and reads the response to its end.
func whole(ctx context.Context, rt http.RoundTripper) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, apiTest, nil)
	if err != nil {
		return err
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// responds returns responses of these statuses, one after the other, each with the body.
func responds(body func() io.Reader, statuses ...int) http.RoundTripper {
	n := 0
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		status := statuses[min(n, len(statuses)-1)]
		if n++; status == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body()), Request: req}, nil
	})
}

func TestWhatAnAttemptIsSettledTo(t *testing.T) {
	const events = "data: {\"choices\":[]}\n\ndata: {\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":12}}\n\ndata: [DONE]\n\n"
	const estimate = 1000
	text := func(s string) func() io.Reader {
		return func() io.Reader { return iotest.HalfReader(strings.NewReader(s)) }
	}
	cut := func() io.Reader {
		return io.MultiReader(strings.NewReader(events[:len(events)-20]), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	total := outgoing.Usage.Total
	for _, c := range []struct {
		name     string
		settle   func(outgoing.Usage) int64
		body     func() io.Reader
		read     int // bytes, before the body is closed
		statuses []int
		charged  int64
	}{
		{"read to its end", total, text(events), 1 << 20, []int{200}, 42},
		{"left after the last event", total, text(events), len(events), []int{200}, 42},
		{"left before", total, text(events), len(events) - 12, []int{200}, estimate},
		{"not read", total, text(events), 0, []int{200}, estimate},
		{"cut", total, cut, 1 << 20, []int{200}, estimate},
		{"without usage", total, text("data: {}\n\ndata: [DONE]\n\n"), 1 << 20, []int{200}, estimate},
		{"no body", total, func() io.Reader { return http.NoBody }, 1 << 20, []int{200}, estimate},
		{"more than the estimate", func(outgoing.Usage) int64 { return 1200 }, text(events), 1 << 20, []int{200}, 1200},
		{"less than nothing", func(outgoing.Usage) int64 { return -5 }, text(events), 1 << 20, []int{200}, 0},
		{"a call that keeps its cost", nil, text(events), 1 << 20, []int{200}, estimate},
		{"400", total, text(events), 0, []int{400}, 0},
		{"429", total, text(events), 0, []int{429}, 0},
		{"500", total, text(events), 0, []int{500}, 0},
		{"504 of a proxy, behind which the API goes on", total, text(events), 0, []int{504}, estimate},
		{"a request that fails", total, text(events), 0, []int{0}, estimate},
		{"503, and a retry", total, text(events), 1 << 20, []int{503, 200}, 42},
	} {
		for how, opts := range map[string]outgoing.Options{"waits": {}, "refuses": {Refuse: true}, "slots": {InFlight: sash.Every(5, time.Minute)}} {
			bubble(t, c.name+", "+how, func(t *testing.T) {
				store := newStore()
				if len(c.statuses) > 1 {
					opts.Retries = outgoing.Retries{Most: 1}
				}
				opts.Base, opts.Spread = responds(c.body, c.statuses...), -1
				route := func(*http.Request) (outgoing.Call, error) {
					requests := sash.Subject{Key: "requests", Cost: 1}
					return outgoing.Call{Key: "tokens", Cost: estimate, Settle: c.settle, Also: []sash.Subject{requests}}, nil
				}
				rt := newRoundTripper(t, store, route, &opts, sash.PerHour(100_000))
				req := newRequest(t, http.MethodGet, apiTest, nil)
				if res, err := rt.RoundTrip(req); err == nil {
					_, _ = io.ReadFull(res.Body, make([]byte, c.read))
					_, _ = res.Body.Close(), res.Body.Close()
				} else if c.statuses[len(c.statuses)-1] != 0 {
					t.Fatal(err)
				}
				l := newLimiter(t, store, nil, sash.PerHour(100_000))
				tokens, err := l.Peek(t.Context(), "tokens")
				if used := 100_000 - tokens.Remaining; used != c.charged || err != nil {
					t.Errorf("charged %d, not %d; %v", used, c.charged, err)
				}
				requests, err := l.Peek(t.Context(), "requests")
				if used := 100_000 - requests.Remaining; used != int64(len(c.statuses)) || err != nil {
					t.Errorf("charged %d requests, not %d; %v", used, len(c.statuses), err)
				}
			})
		}
	}
}

// sixHundred routes requests that cost 600 tokens until they are settled.
func sixHundred(pool *outgoing.Pool) outgoing.Route {
	return func(*http.Request) (outgoing.Call, error) {
		return outgoing.Call{Key: "tokens", Cost: 600, Pool: pool, Settle: outgoing.Usage.Total}, nil
	}
}

// A request that waits starts when the one before it is settled, not a window later, in a window that is longer by the spread.
func TestASettlementMakesRoomForThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, inner := &model{tokens: 100, takes: time.Second}, newStore()
		var windows []int64 // of bookings that are brought forward
		store := over(inner, func(ctx context.Context, b *driver.Batch) error {
			if b.Ops[0].Kind == driver.Extend {
				windows = append(windows, b.Ops[0].Policy.Limits[0].Window)
			}
			return inner.Do(ctx, b)
		})
		opts := &outgoing.Options{Base: handled(api.ServeHTTP), Spread: 5 * time.Second}
		rt := newRoundTripper(t, store, sixHundred(nil), opts, sash.PerMinute(1000))
		begin := time.Now()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := whole(t.Context(), rt); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if d := time.Since(begin); d > 3*time.Second {
			t.Errorf("two requests of a second took %v", d)
		}
		if len(windows) != 1 || windows[0] != 65_000_000 {
			t.Errorf("bookings came forward in windows of %v µs", windows)
		}
	})
}
