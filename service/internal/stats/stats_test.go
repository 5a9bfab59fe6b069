package stats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
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
	cfg := servertest.Must(config.Parse(config.Defaults{}, false, config.File{Name: "x.yaml", Text: []byte(rules)}))(t)
	d := servertest.Must(decide.New(cfg, func(config.Place) (driver.Store, error) { return store, nil }))(t)
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
	families := servertest.Must(r.Prometheus.Gather())(t)
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
		_ = servertest.Must(d.Decide(t.Context(), decide.Request{Domain: "d", Parts: parts, Lenient: true}))(t)
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
		got := [5]uint64{rule[Total].Load(), rule[Within].Load(), rule[Over].Load(), rule[Near].Load(), rule[Shadow].Load()}
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

type broken struct{ err error }

func (broken) Powers() driver.Powers { return 0 }

func (b broken) Do(context.Context, *driver.Batch) error { return b.err }

// Dashboards made for Envoy's service with PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS keep their unit.
func TestResponseTimeInMilliseconds(t *testing.T) {
	for milliseconds, want := range map[bool]float64{false: 0.25, true: 250} {
		r := New(&Options{Milliseconds: milliseconds})
		r.Took(250 * time.Millisecond)
		var m dto.Metric
		servertest.Check(t, r.ResponseTime.Write(&m))
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
// and however often the configuration was replaced. Strangers make no more series than docs/metrics.md has.
func TestConfiguredRulesKeepTheirSeries(t *testing.T) {
	d, r := counting(t, "domain: d\ndescriptors: [{key: first, limits: [5/1h]}]\n", memstore.New(nil))
	one := sash.PerHour(1)
	const ofRequests, left, domains = 1000, 100, 100 // in docs/metrics.md
	for i := range 2 * ofRequests {
		_, _ = d.Decide(t.Context(), decide.One(fmt.Sprint("unknown", i), part("first", "x").Entries, nil))
		entries := []config.Entry{{Key: fmt.Sprint("own", i)}, {Key: "x"}}
		_, _ = d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{{Entries: entries, Cost: 1, RequestLimit: &one}}, Lenient: true})
	}
	for round := range 150 {
		key, tried := fmt.Sprint("key", round), fmt.Sprint("tried", round)
		text := fmt.Appendf(nil, "domain: d\ndescriptors: [{key: %s, limits: [5/1h]}, {key: %s, limits: [5/1h], candidate: {limits: [1/1h]}}]", key, tried)
		cfg := servertest.Must(config.Parse(config.Defaults{}, false, config.File{Name: "x.yaml", Text: text}))(t)
		servertest.Check(t, d.Use(cfg))
		r.Use(cfg)
		for _, k := range []string{key, tried} {
			_ = servertest.Must(d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{part(k, "a")}}))(t)
		}
		for _, name := range []string{key, tried, tried + ".candidate"} {
			if n := r.Rule("d." + name)[Total].Load(); n != 1 {
				t.Fatalf("round %d: %d units are counted for %s", round, n, name)
			}
		}
		if n := r.rules.Get(ruleID{"d", key}).outcomes.counts().Allowed; n != 1 {
			t.Fatalf("round %d: %d decisions are counted", round, n)
		}
	}
	if names, rules := len(r.units.All()), len(r.rules.All()); names > ofRequests+1+3 || rules > left+1+4 {
		t.Errorf("%d names and %d rules are held", names, rules)
	}
	if unknown := len(r.unknown.All()); unknown > domains+1 {
		t.Errorf("%d unknown domains are held", unknown)
	}
}

func TestALongNameCountsUnderOther(t *testing.T) {
	r := New(nil)
	r.Rule("d." + strings.Repeat("a.", maxName))[Total].Add(1)
	r.Rule("d" + strings.Repeat(".a", 100))[Total].Add(1)
	if len(r.units.All()) != 2 || r.Rule(overflow)[Total].Load() != 1 {
		t.Errorf("%d names are held, and %d units are in %q", len(r.units.All()), r.Rule(overflow)[Total].Load(), overflow)
	}
}

// Values of requests with any bytes, and domains that are not configured, make no two series of one name, and no lines of their own.
func TestSeriesOfEveryNameCanBeGathered(t *testing.T) {
	r := New(nil)
	r.Rule("d.evil_a\nratelimit.service.config_load_error: 99\xff")[Over].Add(1)
	var text strings.Builder
	_ = r.WriteText(&text)
	if strings.Contains(text.String(), "\nratelimit.service.config_load_error: 99") {
		t.Error("a request writes lines of its own")
	}
	for _, name := range []string{"d", "d.", "d..", ".", "", "d.a.b.c", "d.a.b.e", "d.a..", "d.1.2.3.4", "d.a.candidate", "d.a.b.candidate"} {
		r.Rule(name)[Total].Add(1)
		r.unknown.Get(name).Add(1)
	}
	if _, err := r.Prometheus.Gather(); err != nil {
		t.Error(err)
	}
	const hits = "ratelimit_service_rate_limit_total_hits"
	if err := testutil.GatherAndCompare(r.Prometheus, strings.NewReader(`# HELP `+hits+` As Envoy's rate limit service counts it.
# TYPE `+hits+` counter
`+hits+`{domain="",key1=""} 1
`+hits+`{domain="d",key1=""} 2
`+hits+`{domain="d",key1="1_2_3_4"} 1
`+hits+`{domain="d",key1="a",key2=""} 1
`+hits+`{domain="d",key1="a",key2="b"} 2
`+hits+`{domain="d",key1="a",key2="b",key3="candidate"} 1
`+hits+`{domain="d",key1="a",key2="candidate"} 1
`+hits+`{domain="d",key1="evil_a_ratelimit",key2="service"} 0
`), hits); err != nil {
		t.Error(err)
	}
}

func TestTheLocalCacheHasEnvoysNames(t *testing.T) {
	r := New(nil)
	r.Rule("d.user")[Cached].Add(3)
	text := func() string {
		var b strings.Builder
		servertest.Check(t, r.WriteText(&b))
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
# HELP ratelimit_redis_pool_cx_active As Envoy's rate limit service counts it.
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

const watchedRules = `
domain: d
descriptors:
- {key: user, limits: [3/1h]}
- {key: soft, limits: [1/1h], shadow_mode: true}
- {key: tried, limits: [8/1h], candidate: {limits: [3/1h]}}
- {key: none}
`

// A world is a decider and the registry that observes it.
type world struct {
	t       *testing.T
	stats   *Registry
	decider *decide.Decider
}

func (w *world) ask(domain, key, value string, cost int64) {
	_, _ = w.decider.Decide(w.t.Context(), decide.One(domain, []config.Entry{{Key: key, Value: value}}, &cost))
}

// counted checks the counts of all rules.
func counted(t *testing.T, snap Snapshot, want map[string]Counts) {
	t.Helper()
	got := make(map[string]Counts)
	for _, line := range snap.Rules {
		got[line.Rule] = line.Count
	}
	if !maps.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Each request counts once, by its outcome, and so does each part under its rule.
func TestRequestsAndRulesAreCountedByOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decider, r := counting(t, watchedRules, memstore.New(nil))
		w := &world{t, r, decider}
		for range 5 {
			w.ask("d", "user", "ann", 1) // three are admitted
		}
		w.ask("d", "user", "bob", 9)  // it can never fit
		w.ask("d", "soft", "x", 1)    // admitted
		w.ask("d", "soft", "x", 1)    // would be refused
		w.ask("d", "other", "x", 1)   // no rule
		w.ask("e", "user", "ann", 1)  // no such domain
		w.ask("d", "user", "cyd", -1) // no such cost
		w.decider.Except([]decide.Exception{{Domain: "d", Entries: []config.Entry{{Key: "user", Value: "dan"}}, Until: time.Now().Add(time.Hour)}})
		w.ask("d", "user", "dan", 1)
		for range 5 {
			w.ask("d", "tried", "ann", 1)
		}
		snap := w.stats.Snapshot()
		if want := (Counts{Allowed: 8, Refused: 3, Banned: 1, Shadow: 3, Invalid: 2}); snap.Requests.Count != want {
			t.Errorf("requests: %+v, want %+v", snap.Requests.Count, want)
		}
		want := map[string]Counts{
			"d.user": {Allowed: 3, Refused: 3, Banned: 1}, "d.soft": {Allowed: 1, Shadow: 1}, "d.tried": {Allowed: 3, Shadow: 2}, unlimited: {Allowed: 1},
		}
		for _, line := range snap.Rules {
			if c := line.Candidate; (c != nil) != (line.Rule == "d.tried") || c != nil && *c != (Tried{5, 2}) {
				t.Errorf("the candidate of %s: %+v", line.Rule, c)
			}
		}
		counted(t, snap, want)
		is(t, w.stats, "sash_decisions_total", "d allowed user store 3\nd refused user store 3\nd refused user config 1\nd allowed soft store 1\nd shadow soft store 1\nd allowed tried store 5")
	})
}

// While the store does not answer, what nobody counted is not allowed, what this instance decided over its share is
// named.
func TestAnOutageIsNotCountedAsDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *Registry
		store := servertest.Must(failover.New(broken{errors.New("LOADING Redis is loading")}, &failover.Options{
			Local: memstore.New(nil), OnError: func(err error, _ failover.Kind) { r.StoreFailed(err) },
		}))(t)
		var decider *decide.Decider
		decider, r = counting(t, `
domain: d
descriptors:
- {key: open, limits: [2/1h], on_unavailable: open}
- {key: closed, limits: [2/1h]}
- {key: local, limits: [2/1h], on_unavailable: local}
- {key: soft, limits: [2/1h], shadow_mode: true}
`, store)
		w := &world{t, r, decider}
		for range 8 {
			for _, key := range []string{"open", "closed", "local", "soft"} {
				w.ask("d", key, "ann", 1)
			}
		}
		snap := r.Snapshot()
		if want := (Counts{Allowed: 2, Uncounted: 8 + 8, Refused: 6, Failed: 8, Local: 8}); snap.Requests.Count != want {
			t.Errorf("requests: %+v, want %+v", snap.Requests.Count, want)
		}
		want := map[string]Counts{"d.open": {Uncounted: 8}, "d.closed": {Failed: 8}, "d.local": {Allowed: 2, Refused: 6, Local: 8}, "d.soft": {Uncounted: 8}}
		counted(t, snap, want)
		is(t, r, "sash_requests_total", "allowed 2\nuncounted 16\nrefused 6\nerror 8")
		is(t, r, "sash_decisions_total", "d error closed policy 8\nd allowed local "+"local 2\nd refused local "+"local 6\nd uncounted open policy 8\nd uncounted soft policy 8")
		is(t, r, "sash_store_failures_total", "loading 32")
	})
}

// A rule's longest wait is the time until the last booking starts, from its first booking on.
func TestTheLongestWaitIsThatOfTheLastBooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(nil)
		rule := &config.Rule{Domain: "d", Label: "job"}
		is := func(metrics int, want float64) {
			t.Helper()
			n, err := testutil.GatherAndCount(r.Prometheus, "sash_longest_wait_seconds")
			if got := r.Snapshot().Rules[0].LongestWait; got != want || n != metrics || err != nil {
				t.Errorf("%v s in %d metrics, want %v in %d (%v)", got, n, want, metrics, err)
			}
		}
		book := func(delay time.Duration) {
			r.Observe(t.Context(), &decide.Observation{
				Domain: "d", Allowed: true, Parts: make([]decide.Part, 1),
				Answers: []decide.Answer{{Rule: rule, Metric: "d.job", Cost: 1, Delay: delay}},
			})
		}
		book(0)
		is(0, 0)
		book(2 * time.Hour)
		book(time.Hour)
		is(1, 7200)
		time.Sleep(90 * time.Minute)
		is(1, 1800)
		time.Sleep(time.Hour)
		is(1, 0)
	})
}
