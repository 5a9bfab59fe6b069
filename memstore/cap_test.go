package memstore_test

import (
	"fmt"
	"testing"

	"example.com/sash"
	"example.com/sash/memstore"
)

// Below the cap no key is dropped, so no call is admitted beyond a limit. The store never exceeds the cap.
func TestNoKeyIsGivenUpBelowTheCap(t *testing.T) {
	for _, most := range []int{1, 10, 100, 1000, 5000} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			store := memstore.New(&memstore.Options{MaxKeys: most})
			limiter, err := sash.New(store, nil, sash.PerHour(2))
			if err != nil {
				t.Fatal(err)
			}
			admitted := 0
			for range 4 {
				for i := range most {
					res, err := limiter.Allow(t.Context(), fmt.Sprint("k", i))
					if err != nil {
						t.Fatal(err)
					}
					if res.Allowed {
						admitted++
					}
				}
			}
			if admitted != 2*most {
				t.Errorf("%d keys with a limit of 2 were admitted %d times", most, admitted)
			}
			for i := range 3 * most {
				if _, err := limiter.Allow(t.Context(), fmt.Sprint("other", i)); err != nil {
					t.Fatal(err)
				}
			}
			stats := store.Stats()
			if stats.Keys > most+most/50 || stats.Evicted == 0 {
				t.Errorf("with a cap of %d keys %d are held and %d were given up", most, stats.Keys, stats.Evicted)
			}
		})
	}
}
