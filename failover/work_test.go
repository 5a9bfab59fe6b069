package failover

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type jobFunc func()

func (f jobFunc) run() { f() }

// A goroutine takes one call after the other while another is under way, and none is left when no call is: the bubble
// would not end.
func TestGoroutinesOfCallsAreReusedAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w workers
		end, ran := make(chan struct{}), 0
		w.do(jobFunc(func() { <-end }))
		for range 100 {
			w.do(jobFunc(func() { ran++ }))
			synctest.Wait()
		}
		if ran != 100 || len(w.idle) != 1 || w.busy != 1 {
			t.Errorf("%d of 100 calls ran; %d goroutines wait for one and %d have one", ran, len(w.idle), w.busy)
		}
		close(end)
		synctest.Wait()
		if len(w.idle) != 0 || w.busy != 0 {
			t.Errorf("after the last call %d goroutines wait for one and %d have one", len(w.idle), w.busy)
		}
	})
}

// The context of a call is like one of the standard library, whether or not the store asks for its end.
func TestTheContextOfACallEndsWhenItIsCancelled(t *testing.T) {
	type key struct{}
	for name, asks := range map[string]bool{"a store that waits for the end": true, "one that looks at the end": false} {
		synctest.Test(t, func(t *testing.T) {
			values, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
			u := &until{Context: context.WithoutCancel(values), deadline: time.Now().Add(time.Hour)}
			var child context.Context = u
			if asks {
				var stop context.CancelFunc
				child, stop = context.WithCancel(u)
				defer stop()
			}
			cancel() // the caller leaves
			if err := child.Err(); err != nil || u.Err() != nil {
				t.Errorf("%s: %v before the end", name, err)
			}
			if at, ok := u.Deadline(); !ok || time.Until(at) != time.Hour {
				t.Errorf("%s: the deadline is %v, %v", name, at, ok)
			}
			u.cancel()
			<-u.Done()
			<-child.Done()
			if !errors.Is(child.Err(), context.Canceled) || !errors.Is(u.Err(), context.Canceled) || child.Value(key{}) != "value" {
				t.Errorf("%s: %v, %v, %v", name, child.Err(), u.Err(), child.Value(key{}))
			}
		})
	}
}
