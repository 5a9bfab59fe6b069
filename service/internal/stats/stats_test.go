package stats

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/cause"
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
	cfg, err := config.Parse(config.Defaults{}, false, config.File{Name: "x.yaml", Text: []byte(rules)})
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

// is checks the series of a counter that are not 0, one a line: the values of the labels, and of the counter.
func is(t *testing.T, r *Registry, name, series string) {
	t.Helper()
	families, err := r.Prometheus.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() != name || m.GetCounter().GetValue() == 0 {
				continue
			}
			var words []string
			for _, l := range m.GetLabel() {
				words = append(words, l.GetValue())
			}
			got = append(got, fmt.Sprint(strings.Join(words, " "), " ", m.GetCounter().GetValue()))
		}
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
	for name, want := range map[string]int{"sash_decision_duration_seconds": int(decide.Origins), "sash_store_failures_total": len(cause.All)} {
		if n, err := testutil.GatherAndCount(r.Prometheus, name); n != want {
			t.Errorf("%d series of %s, want %d, also of what did not occur (%v)", n, name, want, err)
		}
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

// Every rule of the configuration in use counts under its own name, whatever requests brought before it was first used,
// and however often the configuration was replaced.
func TestConfiguredRulesKeepTheirSeries(t *testing.T) {
	d, r := counting(t, "domain: d\ndescriptors: [{key: first, limits: [5/1h]}]\n", memstore.New(nil))
	one := sash.PerHour(1)
	for i := range 2 * maxNames {
		entries := []config.Entry{{Key: fmt.Sprint("own", i)}, {Key: "x"}}
		_, _ = d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{{Entries: entries, Cost: 1, RequestLimit: &one}}, Lenient: true})
	}
	for round := range 150 {
		key, tried := fmt.Sprint("key", round), fmt.Sprint("tried", round)
		cfg, err := config.Parse(config.Defaults{}, false, config.File{Name: "x.yaml", Text: fmt.Appendf(nil, "domain: d\ndescriptors:\n- {key: %s, limits: [5/1h]}\n"+
			"- {key: %s, limits: [5/1h], candidate: {limits: [1/1h]}}\n", key, tried)})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Use(cfg); err != nil {
			t.Fatal(err)
		}
		r.Use(cfg)
		for _, k := range []string{key, tried} {
			if _, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{part(k, "a")}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{key, tried, tried + ".candidate"} {
			if n := r.Rule("d." + name).Total.Load(); n != 1 {
				t.Fatalf("round %d: %d units are counted for %s", round, n, name)
			}
		}
		if n := r.rules.Get(ruleID{"d", key}).outcomes.counts().Allowed; n != 1 {
			t.Fatalf("round %d: %d decisions are counted", round, n)
		}
	}
	if names, rules := len(r.units.All()), len(r.rules.All()); names > maxNames+1+3 || rules > maxLeft+1+4 {
		t.Errorf("%d names and %d rules are held", names, rules)
	}
}

func TestALongNameCountsUnderOther(t *testing.T) {
	r := New(nil)
	r.Rule("d." + strings.Repeat("a.", maxName)).Total.Add(1)
	r.Rule("d" + strings.Repeat(".a", 100)).Total.Add(1)
	if len(r.units.All()) != 2 || r.Rule(overflow).Total.Load() != 1 {
		t.Errorf("%d names are held, and %d units are in %q", len(r.units.All()), r.Rule(overflow).Total.Load(), overflow)
	}
}

func TestNamesAreBoundedAndEscaped(t *testing.T) {
	r := New(nil)
	r.Rule("d.evil_a\nratelimit.service.config_load_error: 99\xff").Over.Add(1)
	r.Rule("d").Over.Add(1)
	for i := range 2 * maxNames {
		r.Rule("d.user_" + strconv.Itoa(i)).Total.Add(1)
	}
	if len(r.units.All()) > maxNames+1 {
		t.Errorf("%d names are held", len(r.units.All()))
	}
	if got := r.Rule("d.user_not_seen").Total.Load(); got != maxNames+2 {
		t.Errorf("%d count together, want %d", got, maxNames+2)
	}
	var text strings.Builder
	_ = r.WriteText(&text)
	if strings.Contains(text.String(), "\nratelimit.service.config_load_error: 99") {
		t.Error("a request writes lines of its own")
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(r)
	if _, err := registry.Gather(); err != nil {
		t.Errorf("Prometheus refuses it: %v", err)
	}
}

// Values of requests with dots, and domains that are not configured, make no two series of one name.
func TestSeriesOfEveryNameCanBeGathered(t *testing.T) {
	r := New(nil)
	for _, name := range []string{"d", "d.", "d..", ".", "", "d.a.b.c", "d.a.b.e", "d.a..", "d.1.2.3.4", "d.a.candidate", "d.a.b.candidate"} {
		r.Rule(name).Total.Add(1)
		r.unknown.Get(name).Add(1)
	}
	if _, err := r.Prometheus.Gather(); err != nil {
		t.Error(err)
	}
}

func TestTheLocalCacheHasEnvoysNames(t *testing.T) {
	r := New(nil)
	r.Rule("d.user").Cached.Add(3)
	text := func() string {
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := text(); strings.Contains(got, "local") {
		t.Errorf("without one there is\n%s", got)
	}
	r.Remember(decide.NewOverLimit(0))
	for _, want := range []string{"rate_limit.d.user.over_limit_with_local_cache: 3\n", "ratelimit.localcache.entryCount: 0\n", "ratelimit.localcache.expiredCount: 0\n"} {
		if got := text(); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if n := testutil.CollectAndCount(r, "ratelimit_localcache_hitCount"); n != 1 {
		t.Errorf("%d metrics of hits", n)
	}
}

func TestGaugesFollowWhatTheyShow(t *testing.T) {
	r, open := New(nil), new(atomic.Int64)
	r.Degraded(func() bool { return true })
	r.Redis(func() (opened, closed uint64) { return 5, 2 })
	r.Connections("http", open, 4096)
	open.Store(3)
	r.Denied("refund")
	want := `
# HELP ratelimit_redis_pool_cx_active Open connections to Redis that decide.
# TYPE ratelimit_redis_pool_cx_active gauge
ratelimit_redis_pool_cx_active 3
# HELP sash_connections Open connections of a port.
# TYPE sash_connections gauge
sash_connections{port="http"} 3
`
	names := []string{"ratelimit_redis_pool_cx_active", "sash_connections"}
	if err := testutil.GatherAndCompare(r.Prometheus, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	is(t, r, "sash_access_denied_total", "refund 1")
}
