package failover_test

import (
	"errors"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func TestASlotIsExtendedWhereItWasTaken(t *testing.T) {
	for mode, want := range map[failover.Mode]error{failover.Open: nil, failover.Local: driver.ErrUnsupported} {
		t.Run(mode.String(), func(t *testing.T) {
			inner := storetest.NewFaulty(memstore.New(nil))
			store, err := failover.New(inner, &failover.Options{
				Modes: failover.Modes{Rules: []failover.Rule{{Mode: mode}}},
				Local: memstore.New(nil),
			})
			if err != nil {
				t.Fatal(err)
			}
			c, err := sash.NewConcurrency(store, nil, 3, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			slot, err := c.Start(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if held, err := slot.Extend(t.Context()); err != nil || !held {
				t.Errorf("while the store is up: %v, %v", held, err)
			}
			inner.Fail(errors.New("broken"))
			if _, err := slot.Extend(t.Context()); !errors.Is(err, sash.ErrUnavailable) {
				t.Errorf("while the store is down: %v", err)
			}
			instead, err := c.Start(t.Context(), "k")
			if err != nil || !instead.Allowed() {
				t.Fatalf("%+v, %v", instead, err)
			}
			if held, err := instead.Extend(t.Context()); !errors.Is(err, want) || held != (want == nil) {
				t.Errorf("a slot that was taken while the store is down: %v, %v", held, err)
			}
			if err := instead.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
