package regionbench

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"
)

var length = flag.Duration("regions", 0,
	"how long callers in three regions ask, beside each fault by itself: 60s. Zero is nine seconds with all faults")

// The limits of these tests: one of which leases are made, and one that is too small for that. Subjects of the second
// begin at firstSmall.
const (
	larges     = 12
	smalls     = 3
	firstSmall = 1000
)

func limits(length time.Duration) (large, small decider) {
	window := max(2*time.Second, length/10)
	lease := max(620*time.Millisecond, window/4) // a little more than four trips of the furthest region
	return decider{Kind: served, Prefix: "large", Limit: limit{window.Milliseconds() / 5, window}, Lease: lease},
		decider{Kind: served, Prefix: "small", Limit: limit{10, window}, Lease: lease}
}

// moving is a demand that moves around the planet: in each of six parts of the run another region has most of it, and
// other subjects are the most frequent ones.
func moving(length time.Duration) func(region int) []stream {
	shares := []float64{0.7, 0.25, 0.05}
	const parts = 6
	return func(region int) (all []stream) {
		for part := range parts {
			from, until := length*time.Duration(part)/parts, length*time.Duration(part+1)/parts
			all = append(all, stream{
				Decider: 0, From: from, Until: until, Rate: 900 * shares[(region+part)%len(shares)],
				Subjects: larges, Skew: 1.3, Turn: 5*part + region%2, Most: 3,
			})
		}
		return append(all, stream{Decider: 1, Until: length, Rate: 10, First: firstSmall, Subjects: smalls, Most: 2})
	}
}

// Six processes in three regions ask a sash serve each about the same subjects, and the demand moves. Whatever happens to
// a region or to the home, no window has more than the limit over all regions, by the clock that all of them have.
func TestNoWindowHasMoreThanTheLimitOverAllRegions(t *testing.T) {
	long := *length > 0
	cases := faults
	span := 9 * time.Second
	if long {
		span = *length
	} else {
		cases = []fault{{"all", together}}
	}
	binary := built(t)
	for _, f := range cases {
		t.Run(f.name, func(t *testing.T) {
			p := start(t)
			events, err := f.events(p, func(part float64) time.Duration { return time.Duration(part * float64(span)) })
			if err != nil {
				t.Fatal(err)
			}
			large, small := limits(span)
			if err := p.serve(binary, large, small); err != nil {
				t.Fatal(err)
			}
			r, err := play(p.plans(uint64(len(f.name)), moving(span), large, small), events...)
			if err != nil {
				t.Fatal(err)
			}
			r.show(t)
			r.keeps(t, large.Limit, 0, larges)
			r.keeps(t, small.Limit, firstSmall, smalls)
			if n := len(r.all(func(_ *stream, c *record) bool { return c.Leased })); n == 0 {
				t.Error("no call was decided beside a region's Redis: this test shows nothing")
			}
		})
	}
}

// built returns a sash that was built for a test.
func built(t *testing.T) string {
	t.Helper()
	binary, err := build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// keeps reports subjects with more than the limit in a window.
func (r *run) keeps(t *testing.T, l limit, first, subjects int) {
	t.Helper()
	most, over := int64(0), []error{}
	for subject := first; subject < first+subjects; subject++ {
		calls := r.all(func(_ *stream, c *record) bool { return c.Subject == subject })
		byStore, byCaller := worst(byStores(calls), l.Window), worst(byCallers(calls), l.Window)
		if byStore > l.Units || byCaller > l.Units {
			over = append(over, fmt.Errorf("subject %d: %d units in the worst window by the clock of the stores, %d by the callers'",
				subject, byStore, byCaller))
		}
		most = max(most, byStore, byCaller)
	}
	if len(over) > 0 {
		t.Errorf("more than %d units in %v: %v", l.Units, l.Window, errors.Join(over...))
	}
	if most == 0 {
		t.Errorf("no subject from %d on was admitted: this test shows nothing", first)
	}
	t.Logf("worst window of %d subjects: %d of %d units in %v", subjects, most, l.Units, l.Window)
}

// show logs what was seen.
func (r *run) show(t *testing.T) {
	t.Helper()
	for i, delay := range delays {
		calls := r.of(i, everything)
		times, late := took(calls)
		leased := len(of(calls, func(c *record) bool { return c.Leased }))
		t.Logf("region %d, %v away: %d calls, %d units admitted, %d calls by leases, %d units refused, %d failed; "+
			"p50 %v, p99 %v; made late by p50 %v, p99 %v", i, 2*delay, len(calls), units(calls, admitted), leased, units(calls, refused), units(calls, failed),
			percentile(times, .5), percentile(times, .99), percentile(late, .5), percentile(late, .99))
	}
	if errs := r.errs(); errs != "" {
		t.Log("errors: ", errs)
	}
}

// A home that loses its state admits more than the limit, at most a limit more, and the judge finds it. The window does not
// pass, however slow the machine is.
func TestALimitThatAHomeForgetsIsExceeded(t *testing.T) {
	p := start(t)
	d := decider{Kind: served, Prefix: "forgotten", Limit: limit{300, time.Minute}, Lease: 620 * time.Millisecond}
	if err := p.serve(built(t), d); err != nil {
		t.Fatal(err)
	}
	plans := p.plans(1, steady(100, 6*time.Second), d)
	for i := range plans {
		plans[i].Patience = 20 * time.Second
	}
	r, err := play(plans, event{3 * time.Second, func() error { _, err := p.home.Do("FLUSHALL"); return err }})
	if err != nil {
		t.Fatal(err)
	}
	r.show(t)
	if n := r.most(r.all(everything), d.Limit); n <= d.Limit.Units || n > 2*d.Limit.Units {
		t.Errorf("%d units in the worst window: want more than %d, and at most twice as many", n, d.Limit.Units)
	}
}
