package stats

import (
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestNamesAreThoseOfEnvoysService(t *testing.T) {
	r := New(nil)
	r.Rule("messaging.message_type_marketing.to_number").Total.Add(3)
	r.Service.ConfigErrors.Add(1)
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ratelimit.service.rate_limit.messaging.message_type_marketing.to_number.total_hits: 3\n",
		"ratelimit.service.rate_limit.messaging.message_type_marketing.to_number.over_limit: 0\n",
		"ratelimit.service.config_load_error: 1\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	err := testutil.CollectAndCompare(r, strings.NewReader(`
# HELP ratelimit_service_rate_limit_total_hits As Envoy's rate limit service counts it.
# TYPE ratelimit_service_rate_limit_total_hits counter
ratelimit_service_rate_limit_total_hits{domain="messaging",key1="message_type_marketing",key2="to_number"} 3
`), "ratelimit_service_rate_limit_total_hits")
	if err != nil {
		t.Error(err)
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
