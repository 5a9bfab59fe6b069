package outgoing_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/outgoing"
	"example.com/sash/redisstore"
)

// twoProcesses returns the transports of two processes that have a store each, on one Redis.
func twoProcesses(t *testing.T, base http.HandlerFunc, opts outgoing.Options, limit sash.Limit) [2]http.RoundTripper {
	t.Helper()
	server := redistest.Start(t)
	var fleet [2]http.RoundTripper
	for i := range fleet {
		fleet[i] = newTransport(t, redisstore.New(redistest.Scripter(server), nil), base, opts, limit)
	}
	return fleet
}

func TestOnRedisTheQuotaIsShared(t *testing.T) {
	var arrived atomic.Int32
	fleet := twoProcesses(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) },
		outgoing.Options{Mode: outgoing.Refuse}, sash.PerHour(30))
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 10 {
				if _, err := get(t.Context(), fleet[i%2]); err != nil && !errors.Is(err, sash.ErrLimited) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := arrived.Load(); n != 30 {
		t.Errorf("%d calls reached the API, want 30", n)
	}
}

func TestOnRedisACoolDownIsShared(t *testing.T) {
	retryAfter := "0" // taken as the shortest cool-down
	fleet := twoProcesses(t, func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			answer(http.StatusTooManyRequests, "Retry-After: "+retryAfter)(w, nil)
		}
	}, outgoing.Options{}, sash.PerHour(5000))

	start := time.Now()
	for i := range 3 { // each is refused, and the other waits for that
		if status, err := get(t.Context(), fleet[i%2]); status != http.StatusTooManyRequests {
			t.Fatal(status, err)
		}
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("two cool-downs of 100ms took %v", took)
	}
	retryAfter = "1000"
	if status, err := get(t.Context(), fleet[0]); status != http.StatusTooManyRequests {
		t.Fatal(status, err)
	}
	retryAfter = ""
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := get(ctx, fleet[1])
	var cool *outgoing.CoolDownError
	if !errors.As(err, &cool) || cool.RetryAfter > 1000*time.Second || cool.RetryAfter < 990*time.Second {
		t.Errorf("the other process: %v", err)
	}
}
