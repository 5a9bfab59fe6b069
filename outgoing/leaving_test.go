package outgoing_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// atOnce is an API that answers immediately.
type atOnce struct{}

func (atOnce) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
}

// 30 requests a second to an API of 20 a second, whose callers leave after a second, from one process and from four: nearly all
// of the 20 are sent in each second.
func TestCallersWhoLeaveStarveNobody(t *testing.T) {
	for _, processes := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(nil)
			var transports []*outgoing.Transport
			for range processes {
				transports = append(transports, newRoundTripper(t, store, outgoing.Everything("api"), &outgoing.Options{Base: atOnce{}}, sash.PerSecond(20)))
			}
			var sent atomic.Int64
			var group sync.WaitGroup
			for i := range 25 * 30 {
				group.Go(func() {
					ctx, leave := context.WithCancel(t.Context())
					defer time.AfterFunc(time.Second, leave).Stop()
					if _, err := get(ctx, transports[i%processes]); err == nil {
						sent.Add(1)
					} else if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				time.Sleep(time.Second / 30)
			}
			group.Wait()
			t.Logf("%d processes: %d of 500 requests", processes, sent.Load())
			if sent.Load() < 475 {
				t.Errorf("%d processes: %d of 500 requests", processes, sent.Load())
			}
		})
	}
}
