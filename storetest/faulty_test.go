package storetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func TestAFaultyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(nil))
		limiter, err := sash.New(store, nil, sash.PerHour(5))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ok := func(want error) {
			t.Helper()
			_, err := limiter.Allow(ctx, "k")
			_, reserved, all := limiter.ReserveAll(ctx, sash.Subject{Key: "k", Cost: 1}, sash.Subject{Key: "l", Cost: 1})
			reset := limiter.Reset(ctx, "k")
			for _, err := range []error{err, all, reset} {
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			}
			if (reserved != nil) != (want == nil) {
				t.Errorf("%d reservations", len(reserved))
			}
		}
		ok(nil)
		store.Fail(errors.New("connection refused"))
		ok(sash.ErrUnavailable)
		store.Fail(nil)
		ok(nil)
		store.Hang(nil)
		ok(context.DeadlineExceeded)
	})
}
