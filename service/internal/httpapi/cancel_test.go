package httpapi

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/wire"
)

// A program repeats a cancellation because it did not get the answer. In between all 10 units were charged to others, and
// other subjects came, whose charges make the store drop what has expired. No algorithm admits an 11th.
func TestACancellationThatIsRepeatedGivesNothingBack(t *testing.T) {
	for _, algorithm := range sash.Algorithms() {
		resolution := ""
		if algorithm == sash.SlidingBuckets {
			resolution = ", resolution: 10s"
		}
		t.Run(algorithm.String(), func(t *testing.T) {
			c := &clock{time.Unix(1_800_000_000, 0)}
			store := memstore.New(&memstore.Options{Now: c.read, MaxKeys: 100}) // in one shard
			decider := servertest.Decider(t, store, fmt.Sprintf("domain: d\ndescriptors: [{key: user, limits: [10/1m], algorithm: %v%s}]\n", algorithm, resolution))
			h := New(decider, &Options{Tokens: wire.NewTokens([]byte("one secret")), Now: c.read, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			request := func(value string, cost int) string {
				return fmt.Sprintf(`{"domain":"d","entries":[{"key":"user","value":%q}],"cost":%d}`, value, cost)
			}
			others := 0
			for _, after := range []time.Duration{0, time.Second, 6 * time.Second} {
				user := after.String()
				c.now = c.now.Truncate(time.Minute).Add(2*time.Minute + 5*time.Second)
				post(t, h, "/v1/allow", request(user, 1), 200)
				c.now = c.now.Add(56 * time.Second)
				cancel := fmt.Sprintf(`{"token":%q}`, post(t, h, "/v1/reserve", request(user, 5), 200)["token"])
				post(t, h, "/v1/cancel", cancel, 200)
				c.now = c.now.Add(after)
				for range 20 {
					others++
					post(t, h, "/v1/allow", request(fmt.Sprint("other ", others), 1), 200)
				}
				for range 10 {
					allow(h, request(user, 1))
				}
				if w := allow(h, request(user, 1)); w.Code != 429 {
					t.Errorf("%v later: after 10 of 10: %d %s", after, w.Code, w.Body)
				}
				post(t, h, "/v1/cancel", cancel, 200)
				if w := allow(h, request(user, 1)); w.Code != 429 {
					t.Errorf("%v later: after the second cancellation: %d %s", after, w.Code, w.Body)
				}
			}
		})
	}
}
