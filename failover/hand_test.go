package failover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// A slot that cannot be handed over because the store is down stays taken there, which Release reports. Who waits gets what
// the mode says.
func TestASlotIsReleasedWhileTheStoreIsDownAndOthersWait(t *testing.T) {
	for mode, want := range map[failover.Mode]sash.Source{failover.Open: sash.FromPolicy, failover.Local: sash.FromLocal, failover.Closed: sash.FromStore} {
		bubble(t, mode.String(), func(t *testing.T) {
			inner := storetest.NewFaulty(memstore.New(nil))
			store, err := failover.New(inner, &failover.Options{
				Modes: failover.Modes{Rules: []failover.Rule{{Mode: mode}}}, Local: memstore.New(nil),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				over, cancel := context.WithCancel(context.Background())
				cancel()
				_ = store.Close(over) // what it owes the broken store is lost
			}()
			c, err := sash.NewConcurrency(store, nil, 2, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			first, second := take(t, c), take(t, c)
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Hour) // a share does not know what was given back
			defer stop()
			got := make(chan *sash.Slot, 1)
			failed := make(chan error, 1)
			go func() {
				slot, err := c.Wait(ctx, "k")
				got <- slot
				failed <- err
			}()
			synctest.Wait()
			if err := first.Release(t.Context()); err != nil { // handed over
				t.Fatal(err)
			}
			if slot, err := <-got, <-failed; err != nil || slot.Result().Source != sash.FromStore {
				t.Fatal(slot, err)
			}
			go func() {
				slot, err := c.Wait(ctx, "k")
				got <- slot
				failed <- err
			}()
			synctest.Wait()
			inner.Fail(errors.New("broken"))
			if err := second.Release(t.Context()); !errors.Is(err, sash.ErrUnavailable) {
				t.Errorf("releasing a slot while the store is down: %v", err)
			}
			slot, err := <-got, <-failed
			switch {
			case mode == failover.Closed && !errors.Is(err, sash.ErrUnavailable):
				t.Errorf("the one that waits got the error %v", err)
			case mode != failover.Closed && (err != nil || slot.Result().Source != want):
				t.Errorf("the one that waits got %+v, %v, and not a slot of %v", slot, err, want)
			}
		})
	}
}

func take(t *testing.T, c *sash.Concurrency) *sash.Slot {
	t.Helper()
	slot, err := c.Start(t.Context(), "k")
	if err != nil || !slot.Allowed() {
		t.Fatal(slot, err)
	}
	return slot
}
