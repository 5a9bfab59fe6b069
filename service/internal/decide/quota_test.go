package decide

import (
	"context"
	"errors"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

const quotas = `
domain: d
descriptors:
- {key: small, limits: [1/1m], quota_mode: true}
- {key: large, limits: [2/1m], quota_mode: true}
- {key: both, limits: [1/1m], quota_mode: true, shadow_mode: true}
- {key: a, limits: [5/1m]}
- {key: free, rate_limit: {unlimited: true}, quota_mode: true}
`

// Envoy's service, since February 2026, refuses a request when all of its quotas are over, or a limit that is none.
func TestAllQuotasOverRefuse(t *testing.T) {
	d, _ := decider(t, quotas)
	for i, step := range []struct {
		what  string
		parts []Part
		want  bool
	}{
		{"both have room", []Part{part("small", 1), part("large", 1)}, true},
		{"one has room", []Part{part("small", 1), part("large", 1)}, true},
		{"all are over", []Part{part("small", 1), part("large", 1)}, false},
		{"all are over beside a limit with room", []Part{part("a", 1), part("small", 1), part("large", 1)}, false},
		{"one alone is over", []Part{part("small", 1)}, false},
		{"an unlimited one is none", []Part{part("small", 1), part("free", 1)}, false},
		{"one that is tried out is none", []Part{part("small", 1), part("both", 1)}, false},
		{"one has room beside a limit without", []Part{part("a", 6), part("small=x", 1), part("small", 1)}, false},
	} {
		if got := allowed(t, d, Request{Parts: step.parts}); got != step.want {
			t.Errorf("step %d, %s: allowed %v", i+1, step.what, got)
		}
	}
	want(t, "what a was charged", ask(t, d, part("a", 0)), "ok:5")
}

// Under QUOTA_MODE every descriptor is a quota, and one that no rule matches has room.
func TestAllPartsAreQuotasOnRequest(t *testing.T) {
	d, _ := decider(t, "domain: d\ndescriptors:\n- {key: a, limits: [1/1m]}\n- {key: b, limits: [2/1m]}\n")
	for i, step := range []struct {
		parts []Part
		want  bool
	}{
		{[]Part{part("a", 1), part("b", 1)}, true},
		{[]Part{part("a", 1), part("b", 1)}, true},
		{[]Part{part("a", 1), part("none", 1)}, true},
		{[]Part{part("a", 1), part("b", 1)}, false},
		{[]Part{part("a", 1)}, false},
	} {
		if got := allowed(t, d, Request{Parts: step.parts, Quota: true}); got != step.want {
			t.Errorf("step %d: allowed %v", i+1, got)
		}
	}
}

// takeAfterLooks is a store in which another caller takes the last unit of a key after it was looked at.
type takeAfterLooks struct {
	*memstore.Store
	key   string
	taken bool
}

func (s *takeAfterLooks) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	answer, err := s.Store.Decide(ctx, req)
	if req.Key == s.key && req.Cost == 0 && !s.taken {
		s.taken = true
		req.Cost = 1
		_, err = s.Store.Decide(ctx, req)
	}
	return answer, err
}

func TestAQuotaThatEndsInBetweenGivesTheOthersBack(t *testing.T) {
	store := &takeAfterLooks{Store: memstore.New(nil), key: config.Key("d", part("small=x", 1).Entries)}
	d := deciderOn(t, quotas, store)
	if _, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part("large=x", 2)}, Lenient: true}); err != nil {
		t.Fatal(err)
	}
	parts := []Part{part("a", 2), part("small=x", 1), part("large=x", 1)}
	want(t, "refused", ask(t, d, parts...), "ok:5 | OVER:0 | OVER:0")
	want(t, "a is not charged", ask(t, d, part("a", 0)), "ok:5")
}

func TestAQuotaThatIsNotDecidedIsNotRoom(t *testing.T) {
	d := deciderOn(t, quotas, &broken{Store: memstore.New(nil), prefix: config.Key("d", part("small", 1).Entries)})
	two := Request{Domain: "d", Parts: []Part{part("small", 1), part("large", 1)}, Lenient: true}
	for i, failed := range []bool{false, false, true} {
		if _, err := d.Decide(t.Context(), two); errors.Is(err, sash.ErrUnavailable) != failed {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
	if _, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part("small", 1)}, Lenient: true}); !errors.Is(err, sash.ErrUnavailable) {
		t.Errorf("one quota alone: %v", err)
	}
}
