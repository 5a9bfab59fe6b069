package stats

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"example.com/sash/failover"
	"example.com/sash/service/internal/decide"
)

// What a failure mode lets through without counting it is a counter of its own, and each failure has a cause.
func TestFailuresAndWhatTheyLetThrough(t *testing.T) {
	var registry *Registry
	store, err := failover.New(broken{errors.New("LOADING Redis is loading the dataset in memory")}, &failover.Options{OnError: func(err error, _ failover.Kind) { registry.StoreFailed(err) }})
	if err != nil {
		t.Fatal(err)
	}
	d, r := counting(t, `
domain: d
descriptors:
- {key: open, limits: [2/1h], on_unavailable: open}
- {key: closed, limits: [2/1h]}
- {key: soft, limits: [2/1h], shadow_mode: true}
- {key: free, rate_limit: {unlimited: true}}
`, store)
	registry = r
	for key, calls := range map[string]int{"open": 1, "closed": 1, "soft": 1, "free": 3} {
		for range calls {
			_, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{part(key, "a")}, Lenient: true})
			if (err != nil) != (key == "closed") {
				t.Fatalf("%s: %v", key, err)
			}
		}
	}
	r.StoreFailed(failover.ErrBudget)
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"sash.uncounted_admissions: 1", "sash.store_failures.loading: 3", "sash.store_failures.budget: 1", "sash.store_failures.auth: 0"} {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("no %q in:\n%s", line, &text)
		}
	}
	is(t, r, "sash_requests_total", `
allowed 4
uncounted 1
error 1
`)
	is(t, r, "sash_decisions_total", `
d error closed policy 1
d allowed free config 3
d uncounted open policy 1
d uncounted soft policy 1
`)
	if n := testutil.CollectAndCount(r, "sash_store_failures_total"); n != len(decide.Causes) {
		t.Errorf("%d causes, want %d, also those that did not occur", n, len(decide.Causes))
	}
}
