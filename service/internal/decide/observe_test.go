package decide

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"example.com/sash/service/internal/config"
)

// Every request is observed once, with its parts, their subjects and their answers.
func TestEveryRequestIsObserved(t *testing.T) {
	d, _ := decider(t, `
domain: d
descriptors:
  - key: user
    limits: ["1/1m"]
  - key: tried
    shadow_mode: true
    limits: ["1/1m"]
`)
	var seen []string
	d.Observe(func(_ context.Context, o *Observation) {
		line := fmt.Sprintf("%s allowed:%v error:%v", o.Domain, o.Allowed, o.Err != nil)
		for _, a := range o.Answers {
			line += fmt.Sprintf(" [%s %s %d, refused %v by %q]", a.Metric, a.Key, a.Cost, a.Refused, a.RefusedBy.Limit.Name)
		}
		if o.Took < 0 || o.Began.IsZero() {
			t.Error("there is no time")
		}
		seen = append(seen, line)
	})
	user, tried := part("user=ann", 1), part("tried=x", 1)
	for range 2 {
		ask(t, d, user, tried)
		if _, err := one(t.Context(), d, One("d", tried.Entries, nil)); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = one(t.Context(), d, One("none", user.Entries, nil))
	u, s := config.Key("d", user.Entries), config.Key("d", tried.Entries)
	want := []string{
		"d allowed:true error:false [d.user " + u + ` 1, refused false by ""] [d.tried ` + s + ` 1, refused false by ""]`,
		"d allowed:true error:false [d.tried " + s + ` 1, refused true by "1/1m"]`,
		"d allowed:false error:false [d.user " + u + ` 1, refused true by "1/1m"] [d.tried ` + s + ` 1, refused true by "1/1m"]`,
		"d allowed:true error:false [d.tried " + s + ` 1, refused true by "1/1m"]`,
		`none allowed:false error:true [  0, refused false by ""]`,
	}
	if !slices.Equal(seen, want) {
		t.Errorf("observed\n%q\nwant\n%q", seen, want)
	}
}

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
