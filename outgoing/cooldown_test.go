package outgoing

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/memstore"
)

func twoProcesses(t *testing.T, longest time.Duration) (a, b *coolDowns) {
	t.Helper()
	store := memstore.New(nil)
	return newCoolDowns(store, "p:", longest), newCoolDowns(store, "p:", longest)
}

func remains(t *testing.T, c *coolDowns) time.Duration {
	t.Helper()
	d, err := c.remaining(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestALongerCoolDownReplacesAShorterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := twoProcesses(t, time.Hour)
		for _, d := range []time.Duration{11 * time.Second, 20 * time.Second, 5 * time.Second} {
			if _, err := here.begin(t.Context(), "k", d, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if d := remains(t, there); d != 16*time.Second {
			t.Errorf("after 11 s, 2 s later 20 s, and 2 s later 5 s, the other process stays away for another %v, want 16 s", d)
		}
	})
}

func TestOldCoolDownsDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := twoProcesses(t, time.Hour)
		for range 2 {
			if _, err := here.begin(t.Context(), "k", 20*time.Minute, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(25 * time.Minute)
		}
		time.Sleep(8 * time.Minute) // the first was 58 minutes ago
		if d := remains(t, there); d != 0 {
			t.Errorf("the other process stays away for another %v, after both cool-downs have ended", d)
		}
	})
}

// Cool-downs come at random from several processes: a process that looks at the store stays away until the
// latest end, but for rounding.
func TestCoolDownsEndWithTheLatest(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			longest := time.Duration(1+random.IntN(60)) * time.Minute
			here, _ := twoProcesses(t, longest)
			var latest time.Time
			for range 60 {
				time.Sleep(1100*time.Millisecond + time.Duration(random.Int64N(int64(longest/20))))
				d := time.Duration(random.Int64N(int64(longest)))
				here.seen = newMemory[string](coolDown.forgotten) // another process each time
				if _, err := here.begin(t.Context(), "k", d, false); err != nil {
					t.Fatal(err)
				}
				if end := time.Now().Add(d); end.After(latest) {
					latest = end
				}
				here.seen = newMemory[string](coolDown.forgotten)
				time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
				got, want := remains(t, here), max(0, time.Until(latest))
				if got < want-5*time.Microsecond || got > want+5*time.Microsecond {
					t.Fatalf("seed %d: stays away for %v; the latest ends in %v (longest %v)", seed, got, want, longest)
				}
			}
		})
	}
}

// A cool-down that may last for a day starts short all the same.
func TestShortCoolDownsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, _ := twoProcesses(t, 25*time.Hour)
		last := time.Duration(0)
		for range 10 {
			d, err := here.begin(t.Context(), "k", time.Second, true)
			if most := max(2*last, time.Second); err != nil || d > most || d < most*9/10-time.Millisecond {
				t.Errorf("after %v a cool-down of %v, %v", last, d, err)
			}
			for left := d; left > 0; left = remains(t, here) {
				time.Sleep(left)
			}
			last = d
		}
	})
}
