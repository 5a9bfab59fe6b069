package outgoing

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

func remains(t *testing.T, c *coolDowns) time.Duration {
	t.Helper()
	d, err := c.remaining(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Cool-downs come at random from several processes: a process that looks at the store stays away until the
// latest end, but for rounding.
func TestCoolDownsEndWithTheLatest(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			longest := time.Duration(1+random.IntN(60)) * time.Minute
			here := newCoolDowns(memstore.New(nil), "p:", longest)
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

// A level that has risen to its limit lets requests book as far ahead as before.
func TestALevelThatIsGoneHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		learned, limit := newLevels(), sash.PerMinute(100)
		subject := sash.Subject{Key: "api", Cost: 1, Limits: []sash.Limit{limit}}
		whole, _, ahead := learned.apply(subject, 100, time.Now())
		now := time.Now()
		learned.fallen.set(idOf("api", limit), level{units: 40, at: now, span: time.Minute}, now)
		if lower, _, rises := learned.apply(subject, 100, time.Now()); lower[0].Units != 40 || rises != time.Minute {
			t.Errorf("the limit is %v, and rises for %v", lower[0], rises)
		}
		time.Sleep(time.Minute)
		if gone, _, rises := learned.apply(subject, 100, time.Now()); gone[0] != whole[0] || rises != ahead {
			t.Errorf("a minute later the limit is %v, and bookings go %v ahead, want %v and %v", gone[0], rises, whole[0], ahead)
		}
	})
}

const ms = time.Millisecond

// grown returns spreads that have seen n requests that took from least to most, evenly, and later ones that took the same.
func grown(n int, least, most time.Duration, later int, same time.Duration) *spreads {
	s := newSpreads(0)
	for i := range n {
		s.took("api", least+(most-least)*time.Duration(i)/time.Duration(n-1), false)
	}
	for range later {
		s.took("api", same, false)
	}
	return s
}

func TestTheSpreadIsLearntFromWhatRequestsTake(t *testing.T) {
	for name, c := range map[string]struct {
		seen        *spreads
		window      time.Duration
		least, most time.Duration
	}{
		"unknown":                  {newSpreads(0), 5 * time.Second, 500 * ms, 500 * ms},
		"unknown, a long window":   {newSpreads(0), time.Hour, time.Second, time.Second},
		"three are too few":        {grown(3, 0, ms, 0, 0), 5 * time.Second, 500 * ms, 500 * ms},
		"few may be exceeded":      {grown(8, 200*ms, 300*ms, 0, 0), 5 * time.Second, 200 * ms, 250 * ms},
		"many":                     {grown(100, 200*ms, 300*ms, 0, 0), 5 * time.Second, 108 * ms, 158 * ms},
		"all equally far":          {grown(100, 900*ms, 900*ms, 0, 0), 5 * time.Second, 100 * ms, 100 * ms},
		"all equally far, a burst": {grown(100, 900*ms, 900*ms, 0, 0), 100 * ms, 2 * ms, 2 * ms},
		"bounded by the window":    {grown(100, 0, 30*time.Second, 0, 0), 5 * time.Second, 1250 * ms, 1250 * ms},
		"bounded":                  {grown(100, 0, 30*time.Second, 0, 0), time.Hour, 2 * time.Second, 2 * time.Second},
		"equal ones push out":      {grown(100, 0, time.Second, 128, 10*ms), 5 * time.Second, 100 * ms, 100 * ms},
		"given":                    {newSpreads(7 * ms), 5 * time.Second, 7 * ms, 7 * ms},
		"none":                     {newSpreads(-1), 5 * time.Second, 0, 0},
	} {
		if d := c.seen.of("api", c.window); d < c.least || d > c.most {
			t.Errorf("%s: the spread for windows of %v is %v, want %v to %v", name, c.window, d, c.least, c.most)
		}
	}
}

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
			if _, ok := m.get(i, now); !ok && c.lasts > 0 {
				t.Fatalf("%s: key %d was forgotten at once", name, i)
			}
			if oldest := i - int(c.lasts/time.Second) + 1; c.all && c.lasts > 0 && oldest >= 0 {
				if _, ok := m.get(oldest, now); !ok {
					t.Fatalf("%s: key %d was forgotten before its end", name, oldest)
				}
			}
		}
		if most > c.most+1 {
			t.Errorf("%s: it held %d keys", name, most)
		}
	}
}
