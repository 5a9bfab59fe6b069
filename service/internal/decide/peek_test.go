package decide

import (
	"context"
	"errors"
	"testing"

	"example.com/sash"
)

const threeRules = `
domain: d
descriptors:
- {key: k, limits: [3/10s, 4/1m]}
- {key: shadow, limits: [1/10s], shadow_mode: true}
- {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
`

// Peeks charge nothing, notify no observer, and return what a request would be answered.
func TestAPeekIsNoRequest(t *testing.T) {
	d, _ := decider(t, threeRules)
	observed := 0
	d.Observe(func(context.Context, *Observation) { observed++ })
	cost := int64(3)
	for range 3 {
		v, err := peekOne(t.Context(), d, One("d", part("k=a", 0).Entries, &cost))
		if err != nil || !v.Allowed() || remaining(v) != 3 {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if observed != 0 {
		t.Errorf("observers were notified %d times", observed)
	}
	if v, err := one(t.Context(), d, One("d", part("k=a", 0).Entries, nil)); err != nil || remaining(v) != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
	v, err := peekOne(t.Context(), d, One("d", part("k=a", 0).Entries, &cost))
	if err != nil || v.Allowed() || v.RefusedBy.Limit.Name != "3/10s" {
		t.Errorf("two are left, and three are asked for: %+v, %v", v, err)
	}
}

func TestAPeekAtWhatNeverFits(t *testing.T) {
	d, _ := decider(t, threeRules)
	cost := int64(4)
	for _, entries := range []string{"k=a", "none=a"} {
		if _, err := peekOne(t.Context(), d, One("d", part(entries, 0).Entries, &cost)); !errors.Is(err, sash.ErrCostAboveLimit) {
			t.Errorf("%s: %v", entries, err)
		}
	}
	v, err := peekOne(t.Context(), d, One("d", part("shadow=a", 0).Entries, &cost))
	if err != nil || !v.Allowed() || !v.Soft() || !v.Refused {
		t.Errorf("%+v, %v", v, err)
	}
}
