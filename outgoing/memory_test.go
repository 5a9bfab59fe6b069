package outgoing

import (
	"testing"
	"time"
)

func TestAMemoryIsBounded(t *testing.T) {
	start := time.Unix(0, 0)
	over := func(end, now time.Time) bool { return !end.After(now) }
	for name, c := range map[string]struct {
		lasts time.Duration // of each key, of which one comes a second
		most  int
		all   bool // nothing that is not over is forgotten
	}{
		"over soon":           {time.Second, memorySweep, true},
		"over late":           {10_000 * time.Second, 2 * 10_000, true},
		"never over":          {1 << 62, memoryMost, false},
		"over before it came": {-time.Second, memorySweep, true},
	} {
		m, most := newMemory[int](over), 0
		for i := range 3 * memoryMost {
			now := start.Add(time.Duration(i) * time.Second)
			m.set(i, now.Add(c.lasts), now)
			most = max(most, len(m.all))
			if _, ok := m.get(i); !ok && c.lasts > 0 {
				t.Fatalf("%s: key %d was forgotten at once", name, i)
			}
			if oldest := i - int(c.lasts/time.Second) + 1; c.all && c.lasts > 0 && oldest >= 0 {
				if _, ok := m.get(oldest); !ok {
					t.Fatalf("%s: key %d was forgotten before its end", name, oldest)
				}
			}
		}
		if most > c.most+1 {
			t.Errorf("%s: it held %d keys", name, most)
		}
	}
}
