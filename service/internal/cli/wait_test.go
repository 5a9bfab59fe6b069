package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// TestAnInterruptedBookingIsGivenBack states that a command that is interrupted while Redis decides ends when it has given
// back what Redis booked.
func TestAnInterruptedBookingIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := late{memstore.New(nil), make(chan struct{})}
		l, err := sash.New(store, nil, sash.PerHour(1))
		if err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- new(app).wait(ctx, &subject{cost: 1, timeout: 2 * time.Second}, l, "k", time.Minute) }()
		synctest.Wait()
		interrupt()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the command ends while Redis decides")
		}
		close(store.decides)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("%d of 1 are left: %v", res.Remaining, err)
		}
	})
}

// late is a store that decides when it is let.
type late struct {
	*memstore.Store
	decides chan struct{}
}

func (s late) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	<-s.decides
	return s.Store.Decide(ctx, req)
}
