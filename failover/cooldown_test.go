package failover_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// A cool-down gets the budget of any call, and a store that is down is not asked for it.
func TestACoolDownWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := storetest.NewFaulty(memstore.New(nil))
		store, err := failover.New(inner, &failover.Options{Modes: failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}}})
		if err != nil {
			t.Fatal(err)
		}
		minute := driver.CoolDown{Length: time.Minute.Microseconds()}
		if c, err := store.CoolDown(t.Context(), "k", minute); err != nil || c.Left != minute.Length {
			t.Fatal(c, err)
		}
		inner.Hang(nil)
		began := time.Now()
		for store.State() == failover.Up {
			if _, err := store.CoolDown(t.Context(), "k", driver.CoolDown{}); !errors.Is(err, sash.ErrUnavailable) {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Fatal("the breaker stays closed")
			}
		}
		began = time.Now()
		if _, err := store.CoolDown(t.Context(), "k", minute); !errors.Is(err, failover.ErrDown) || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
