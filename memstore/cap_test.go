package memstore_test

import (
	"errors"
	"fmt"
	"testing"

	"example.com/sash"
	"example.com/sash/memstore"
)

// Up to the cap no key is dropped, so no call is admitted beyond a limit. Keys that are refused stay, however many others
// come, and the store never exceeds the cap.
func TestNoRefusedKeyIsGivenUp(t *testing.T) {
	for _, most := range []int{1, 10, 100, 1000, 5000} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			store := memstore.New(&memstore.Options{MaxKeys: most})
			limiter := newLimiter(t, store, sash.SlidingLog, sash.PerHour(2))
			admitted := 0
			call := func(rounds int) {
				for range rounds {
					for i := range most {
						if allow(t, limiter, fmt.Sprint("k", i)).Allowed {
							admitted++
						}
					}
				}
			}
			call(4)
			for i := range 3 * most {
				if _, err := limiter.Allow(t.Context(), fmt.Sprint("other", i)); err != nil && !errors.Is(err, memstore.ErrFull) {
					t.Fatal(err)
				}
			}
			call(1)
			if admitted != 2*most {
				t.Errorf("%d keys with a limit of 2 were admitted %d times", most, admitted)
			}
			stats := store.Swept()
			if stats.Keys > most+most/50 || stats.Evicted+stats.TurnedAway == 0 {
				t.Errorf("with a cap of %d keys: %+v", most, stats)
			}
		})
	}
}
