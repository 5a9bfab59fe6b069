package memstore_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func TestCoolDownsCountAsKeysAndExpire(t *testing.T) {
	const most = 1000
	now := time.UnixMicro(1_700_000_000_000_000)
	store := memstore.New(&memstore.Options{MaxKeys: most, Now: func() time.Time { return now }})
	for i := range 5 * most {
		c := driver.CoolDown{Length: time.Minute.Microseconds()}
		if _, err := store.CoolDown(t.Context(), strconv.Itoa(i), c); err != nil && !errors.Is(err, memstore.ErrFull) {
			t.Fatal(err)
		}
		if _, err := store.CoolDown(t.Context(), "looked for"+strconv.Itoa(i), driver.CoolDown{}); err != nil {
			t.Fatal(err)
		}
	}
	if stats := store.Swept(); stats.Keys < most*98/100 || stats.Keys > most*102/100 || stats.Evicted != 0 || stats.TurnedAway == 0 {
		t.Errorf("%+v", stats)
	}
	now = now.Add(2 * time.Minute)
	if keys := store.Swept().Keys; keys != 0 {
		t.Errorf("%d cool-downs are kept for longer than they lasted", keys)
	}
}
