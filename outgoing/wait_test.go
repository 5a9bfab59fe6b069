package outgoing_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
	"example.com/sash/storetest"
)

// A request that the store has admitted is not sent when the API has refused another one meanwhile. It gives its charge
// back where it may wait.
func TestARequestIsHeldBackUntilItIsSent(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := storetest.NewFaulty(newStore())
			store.Slow(100 * time.Millisecond)
			api := &scripted{answers: []http.HandlerFunc{answer(429, "Retry-After: 5"), answer(200)}}
			rt := newTransport(t, store, api.ServeHTTP, outgoing.Options{Refuse: refuse}, sash.PerMinute(10))
			start := time.Now()
			var group sync.WaitGroup
			group.Go(func() {
				if status, err := get(t.Context(), rt); err != nil || status != http.StatusTooManyRequests {
					t.Error(status, err)
				}
			})
			time.Sleep(50 * time.Millisecond)
			status, err := get(t.Context(), rt)
			var cool *outgoing.CoolDownError
			took := time.Since(start) // 5 s, a tenth more as the spread, and ten calls of the store
			if refuse != errors.As(err, &cool) || !refuse && (status != http.StatusOK || took < 5*time.Second || took > 6500*time.Millisecond) {
				t.Errorf("refuse %v: %d, %v after %v", refuse, status, err, took)
			}
			group.Wait()
		})
	}
}
