package sash

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/memstore"
)

// The last of a queue leaves while the timer of its group waits for the mutex, and the next caller comes before the timer gets it.
func TestUnitsThatComeBackReachWhoCameBeforeALateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := New(memstore.New(nil), nil, Every(1, 10*time.Second))
		var all [3]*Reservation
		for i := range all {
			all[i], _ = l.Reserve(t.Context(), "k", 1, &ReserveOptions{WaitUpTo: time.Minute})
			if i == 1 {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				time.AfterFunc(time.Second, stop)
				_ = all[i].Wait(ctx)
			}
		}
		time.AfterFunc(time.Second, func() {
			l.queues.start(all[1].waiter.group)
			_ = all[0].Cancel(t.Context())
		})
		if err := all[2].Wait(t.Context()); err != nil || time.Since(all[0].Result().At) > 3*time.Second {
			t.Errorf("the next one starts %v after the first, %v", time.Since(all[0].Result().At), err)
		}
	})
}
