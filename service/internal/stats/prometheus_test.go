package stats

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"example.com/sash/service/internal/decide"
)

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
