package roundtrip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/goredisstore"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
	"example.com/sash/stack"
)

// latency is the time that a request and its response take, each.
const latency = 5 * time.Millisecond

// An api is a handler behind httplimit, and a record of its responses.
type api struct {
	handler http.Handler

	mu    sync.Mutex
	calls []exchange // guarded by mu; in the order of their decisions
}

// An exchange is one request as the client sees it.
type exchange struct {
	sent, arrived time.Time
	status        int
	retryAfter    time.Duration
}

// An arrangement is a middleware to test: its limits, and perhaps layers in place of one key for all.
type arrangement struct {
	limits []sash.Limit
	layers []httplimit.Layer
	opts   httplimit.Options
}

func newAPI(t *testing.T, store driver.Store, a arrangement) *api {
	t.Helper()
	limiter := must(sash.New(store, nil, a.limits...))(t)
	if a.layers == nil {
		a.layers = []httplimit.Layer{{Key: httplimit.Shared("client")}}
	}
	limit := must(httplimit.NewLayers(limiter, a.layers, &a.opts))(t)
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	return &api{handler: limit(served)}
}

// RoundTrip calls the handler in this process, so that both sides have the test's clock. The Date is that of net/http.
func (a *api) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := time.Now()
	time.Sleep(latency)
	rec := httptest.NewRecorder()
	a.handler.ServeHTTP(rec, req)
	res := rec.Result()
	res.Request = req
	res.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	a.mu.Lock()
	a.calls = append(a.calls, exchange{
		sent: sent, arrived: time.Now().Add(latency), status: res.StatusCode, retryAfter: time.Duration(seconds) * time.Second,
	})
	a.mu.Unlock()
	time.Sleep(latency)
	return res, nil
}

func (a *api) answered(status int) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if c.status == status {
			n++
		}
	}
	return n
}

// repeated returns how many refusals came right after another refusal. A client that sends one request after the
// other has then waited for the retry time of the first in vain.
func (a *api) repeated() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 1; i < len(a.calls); i++ {
		last, next := a.calls[i-1], a.calls[i]
		if last.status == http.StatusTooManyRequests && next.status == http.StatusTooManyRequests {
			n++
		}
	}
	return n
}

// early returns by how much a client was too early, at the worst: it sent a request before the retry time of a
// response that it, or a client with the same store, had received.
func (a *api) early() (worst time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, refused := range a.calls {
		if refused.retryAfter == 0 {
			continue
		}
		for _, c := range a.calls {
			if c.sent.After(refused.arrived) {
				worst = max(worst, refused.arrived.Add(refused.retryAfter).Sub(c.sent))
			}
		}
	}
	return worst
}

// must returns what gives a test the value, and ends the test if there is an error: must(sash.New(store, nil, limit))(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// newClient returns a transport with limits whose requests wait, which shares its charges in store.
func newClient(t *testing.T, store driver.Store, base http.RoundTripper, limits ...sash.Limit) *outgoing.Transport {
	t.Helper()
	return must(outgoing.New(store, outgoing.Everything("api"), &outgoing.Options{Base: base}, limits...))(t)
}

func send(ctx context.Context, rt http.RoundTripper) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
	if err != nil {
		return 0, err
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// stream sends requests one after the other, from each of several workers over each transport, until a time has passed.
func stream(t *testing.T, transports []*outgoing.Transport, workers int, lasts time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var group sync.WaitGroup
	for _, transport := range transports {
		for range workers {
			group.Go(func() {
				for {
					if _, err := send(ctx, transport); err != nil {
						if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
	}
	group.Wait()
}

func newStore() *memstore.Store { return memstore.New(nil) }

// bubble runs a subtest whose clock is its own.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A store that calls Redis as little as it can, and answers when Redis does not: here there is no Redis.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, DialTimeout: 20 * time.Millisecond})
	defer client.Close()

	store, err := stack.New(goredisstore.New(client, nil), &stack.Options{Failover: failover.Options{
		Modes: failover.Modes{Rules: []failover.Rule{
			{MaxCost: 1, Mode: failover.Open},   // admitted, not counted
			{MaxCost: 20, Mode: failover.Local}, // this process's share; what costs more is an error
		}},
		Instances: func() int { return 4 }, // that share the limits
	}})
	if err != nil {
		log.Fatal(err)
	}

	limiter, err := sash.New(store, nil, sash.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	for _, cost := range []int64{1, 20, 50} {
		res, err := limiter.AllowN(context.Background(), "k", cost)
		if err != nil {
			fmt.Println(cost, "is an error")
		} else {
			fmt.Println(cost, res.Allowed, res.Source)
		}
	}
	// Output:
	// 1 true policy
	// 20 true local
	// 50 is an error
}

// While a node of a Cluster is down, the subjects of the other nodes are still decided: each of 64 runs of slots has its
// own breaker.
func Example_cluster() {
	addrs := []string{"10.0.0.7:7000", "10.0.0.8:7000"}
	client := redis.NewClusterClient(goredisstore.Tune(&redis.ClusterOptions{Addrs: addrs}))
	defer client.Close()
	goredisstore.Greet(client)
	shared := goredisstore.New(client, nil)
	const slots, parts = 16384, 64 // a run of slots is short, so that few lie on two nodes
	store, err := stack.New(shared, &stack.Options{Failover: failover.Options{
		Parts: parts,
		Part: func(key string, policy *driver.Policy) int {
			return shared.Slot(key, policy) * parts / slots
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sash.New(store, nil, sash.PerMinute(100))
	fmt.Println(limiter, err)
}
