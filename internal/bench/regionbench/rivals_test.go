package regionbench

import (
	"testing"
	"time"
)

// steady is calls on one subject at the same rate in every region.
func steady(rate float64, until time.Duration) func(int) []stream {
	return func(int) []stream { return []stream{{Rate: rate, Until: until, Subjects: 1}} }
}

func start(t *testing.T) *planet {
	t.Helper()
	p, err := newPlanet()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

// A limit in each region admits as many times the limit as there are regions. Both judges see it.
func TestALimitPerRegionAdmitsThreeTimesTheLimit(t *testing.T) {
	p := start(t)
	limit := limit{100, time.Second}
	r, err := play(p.plans(1, steady(200, 1500*time.Millisecond), decider{Kind: apart, Limit: limit}))
	if err != nil {
		t.Fatal(err)
	}
	all := r.all(everything)
	if n := worst(byStores(all), limit.Window); n <= 200 || n > 300 {
		t.Errorf("by the clock of the stores the worst window has %d units, want nearly 300", n)
	}
	if n := worst(byCallers(all), limit.Window); n <= 200 || n > 300 {
		t.Errorf("by the callers' clock the worst window has %d units, want nearly 300", n)
	}
}

// One Redis for all regions keeps the limit, and each call takes the way there and back.
func TestOneRedisForAllRegionsTakesTheWayThere(t *testing.T) {
	p := start(t)
	limit := limit{100, time.Second}
	r, err := play(p.plans(1, steady(200, 1500*time.Millisecond), decider{Kind: central, Limit: limit}))
	if err != nil {
		t.Fatal(err)
	}
	all := r.all(everything)
	if n := worst(byStores(all), limit.Window); n == 0 || n > 100 {
		t.Errorf("the worst window has %d units, want at most 100", n)
	}
	for i, delay := range delays {
		times, late := took(r.of(i, func(_ *stream, c *record) bool { return c.Outcome != failed }))
		if len(times) == 0 || times[0] < 2*delay {
			t.Errorf("region %d: the fastest of %d calls took %v, and the way there and back %v", i, len(times), times[0], 2*delay)
		}
		t.Logf("region %d: p50 %v, p99 %v; late p50 %v, p99 %v", i, percentile(times, .5), percentile(times, .99), percentile(late, .5), percentile(late, .99))
	}
}
