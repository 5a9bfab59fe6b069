package telemetry

import (
	"testing"

	"go.uber.org/goleak"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rules = `
domain: d
descriptors:
- {key: user, limits: [2/1h]}
- {key: soft, limits: [1/1h], shadow_mode: true}
- {key: detailed, limits: [1/1h], detailed_metric: true}
- {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
`

func decider(t *testing.T) *decide.Decider {
	t.Helper()
	return servertest.Decider(t, memstore.New(nil), rules)
}

// ask requests one unit for one entry.
func ask(t *testing.T, d *decide.Decider, key, value string) {
	t.Helper()
	parts := []decide.Part{{Entries: []config.Entry{{Key: key, Value: value}}, Cost: 1}}
	if _, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: parts, Lenient: true}); err != nil {
		t.Fatal(err)
	}
}
