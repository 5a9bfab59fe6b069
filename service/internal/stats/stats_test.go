package stats

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

const rules = `
domain: d
descriptors:
- {key: user, limits: [2/1h]}
- {key: plan, value: gold, limits: [100/1h]}
- {key: plan, value: "t*", limits: [1/1h], detailed_metric: true}
- {key: soft, limits: [1/1h], shadow_mode: true}
- {key: free, rate_limit: {unlimited: true}}
- {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: ip, value_to_metric: true, limits: [1/1h]}
`

// counting returns a decider by a configuration, and the registry that observes it.
func counting(t testing.TB, rules string, store driver.Store) (*decide.Decider, *Registry) {
	t.Helper()
	cfg, err := config.Parse("x.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	d, err := decide.New(cfg, store)
	if err != nil {
		t.Fatal(err)
	}
	r := New(nil)
	r.Use(cfg)
	d.Observe(r.Observe)
	return d, r
}

func part(key, value string) decide.Part {
	return decide.Part{Entries: []config.Entry{{Key: key, Value: value}}, Cost: 1}
}

// is checks the series of a metric, one a line.
func is(t *testing.T, r *Registry, name, series string) {
	t.Helper()
	metrics := make(chan prometheus.Metric)
	go func() {
		defer close(metrics)
		r.collectRequests(metrics)
		r.collectRules(metrics)
	}()
	var got []string
	for metric := range metrics {
		var m dto.Metric
		if err := metric.Write(&m); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(metric.Desc().String(), `"`+name+`"`) || m.GetCounter().GetValue() == 0 {
			continue
		}
		var labels []string
		for _, l := range m.Label {
			labels = append(labels, l.GetValue())
		}
		got = append(got, fmt.Sprint(strings.Join(labels, " "), " ", m.GetCounter().GetValue()))
	}
	want := strings.Split(strings.TrimSpace(series), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBothProtocolsCountAlike(t *testing.T) {
	d, r := counting(t, rules, memstore.New(nil))
	native := func(key, value string) {
		_, _ = d.Decide(t.Context(), decide.One("d", part(key, value).Entries, nil))
	}
	envoys := func(parts ...decide.Part) {
		if _, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: parts, Lenient: true}); err != nil {
			t.Fatal(err)
		}
	}
	native("user", "ann")
	envoys(part("user", "ann"))
	native("user", "ann")
	envoys(part("user", "ann"), part("plan", "gold"))
	native("soft", "x")
	native("soft", "x")
	envoys(part("soft", "x"), part("free", ""))
	native("never", "")
	envoys(part("never", ""))
	envoys(part("plan", "team-7"), part("ip", "192.0.2.7"), part("unknown", "x"))
	is(t, r, "sash_decisions_total", `
d allowed user store 2
d refused user store 2
d allowed plan_gold store 1
d allowed soft store 1
d shadow soft store 2
d allowed free config 1
d refused never config 1
d refused never store 1
d allowed plan_t* store 1
d allowed ip store 1`)
	is(t, r, "sash_requests_total", "allowed 6\nrefused 4")
	if n := testutil.CollectAndCount(r, "sash_decision_duration_seconds"); n != int(decide.Origins) {
		t.Errorf("%d series of durations", n)
	}
	for name, want := range map[string][5]uint64{ // total, within, over, near, shadow
		"d.user":             {4, 2, 2, 1, 0},
		"d.plan_gold":        {1, 1, 0, 0, 0},
		"d.soft":             {3, 1, 2, 1, 2},
		"d.never":            {2, 0, 2, 0, 0},
		"d.plan_team-7":      {1, 1, 0, 1, 0},
		"d.ip_192.0.2.7":     {1, 1, 0, 1, 0},
		"d.plan_not-counted": {},
	} {
		rule := r.Rule(name)
		got := [5]uint64{rule.Total.Load(), rule.Within.Load(), rule.Over.Load(), rule.Near.Load(), rule.Shadow.Load()}
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

type broken struct{ err error }

func (b broken) Decide(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, b.err
}

func BenchmarkDecisions(b *testing.B) {
	for _, observed := range []bool{false, true} {
		b.Run(fmt.Sprintf("observed=%v", observed), func(b *testing.B) {
			cfg, err := config.Parse("x.yaml", []byte("domain: d\ndescriptors: [{key: user, limits: [1000000/1s]}, {key: ip, limits: [1000000/1s]}]\n"))
			if err != nil {
				b.Fatal(err)
			}
			d, err := decide.New(cfg, memstore.New(nil))
			if err != nil {
				b.Fatal(err)
			}
			if observed {
				d.Observe(New(nil).Observe)
			}
			var requests [64][]decide.Part
			for i := range requests {
				requests[i] = []decide.Part{part("user", fmt.Sprint(i)), part("ip", fmt.Sprint(i))}
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := d.Decide(b.Context(), decide.Request{Domain: "d", Parts: requests[i%len(requests)], Lenient: true}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS of Envoy's service keeps dashboards that were made when it counted so.
func TestResponseTimeInMilliseconds(t *testing.T) {
	for milliseconds, want := range map[bool]float64{false: 0.25, true: 250} {
		r := New(&Options{Milliseconds: milliseconds})
		r.Took(250 * time.Millisecond)
		var m dto.Metric
		if err := r.ResponseTime.Write(&m); err != nil {
			t.Fatal(err)
		}
		h := m.GetHistogram()
		if got := h.GetSampleSum(); got != want {
			t.Errorf("milliseconds %v: the sum is %v, want %v", milliseconds, got, want)
		}
		if buckets := h.GetBucket(); buckets[0].GetCumulativeCount() != 0 || buckets[len(buckets)-1].GetCumulativeCount() != 1 {
			t.Errorf("milliseconds %v: the buckets are of another unit", milliseconds)
		}
	}
}
