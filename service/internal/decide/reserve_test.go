package decide

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func reserve(t *testing.T, d *Decider, id, entries string, units int64) (Answer, *Reservation) {
	t.Helper()
	v, r, err := d.Reserve(t.Context(), named(id, One("d", part(entries, 0).Entries, &units)))
	check(t, err)
	if v.Allowed() != (r != nil) {
		t.Fatalf("%+v comes with %+v", v, r)
	}
	return v, r
}

func settle(t *testing.T, d *Decider, r *Reservation, used int64) {
	t.Helper()
	check(t, d.Settle(t.Context(), r, used))
}

// left returns what a subject has left, by a look that charges nothing.
func left(t *testing.T, d *Decider, entries string) int64 {
	t.Helper()
	return remaining(must(peekOne(t.Context(), d, One("d", part(entries, 0).Entries, nil)))(t))
}

func expectLeft(t *testing.T, d *Decider, what, entries string, want int64) {
	t.Helper()
	if got := left(t, d, entries); got != want {
		t.Errorf("%s: %d left, want %d", what, got, want)
	}
}

// What one process reserved another one settles, once, on every algorithm.
func TestAReservationIsSettledElsewhere(t *testing.T) {
	store := memstore.New(nil)
	for _, algorithm := range sash.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			text := "domain: d\ndescriptors:\n- {key: k" + algorithm.String() + ", limits: [100/300d], algorithm: " + algorithm.String() + "}\n"
			here, there := deciderOn(t, text, store), deciderOn(t, text, store)
			key := "k" + algorithm.String() + "=a"

			_, r := reserve(t, here, "", key, 40)
			expectLeft(t, there, "reserved", key, 60)
			settle(t, there, r, 25)
			expectLeft(t, here, "less was used", key, 75)
			settle(t, here, r, 25)
			settle(t, here, r, 0)
			expectLeft(t, here, "settled again", key, 75)

			_, r = reserve(t, here, "", key, 10)
			settle(t, there, r, 10)
			settle(t, there, r, 0)
			expectLeft(t, here, "cancelled after it was settled as estimated", key, 65)

			_, r = reserve(t, here, "", key, 10)
			settle(t, there, r, 20)
			expectLeft(t, here, "more was used", key, 45)

			_, r = reserve(t, here, "", key, 10)
			settle(t, there, r, 0)
			settle(t, there, r, 10)
			expectLeft(t, here, "cancelled", key, 45)

			if v, _ := reserve(t, here, "", key, 46); v.Allowed() || v.RefusedBy.Limit.Name != "100/300d" {
				t.Errorf("more than is left: %+v", v)
			}
			expectLeft(t, here, "refused", key, 45)
		})
	}
}

const ten = "domain: d\ndescriptors:\n- {key: k, limits: [10/6h]}\n"

// Asked again with its ID a request is charged once, and its reservation is the same one.
func TestARequestWithAnIDIsChargedOnce(t *testing.T) {
	store := memstore.New(nil)
	here, there := deciderOn(t, ten, store), deciderOn(t, ten, store)
	_, first := reserve(t, here, "job", "k=a", 4)
	v, again := reserve(t, there, "job", "k=a", 4)
	expectLeft(t, here, "reserved twice", "k=a", 6)
	if first.ID != again.ID || !first.At.Equal(again.At) || remaining(v) != 6 {
		t.Errorf("%+v, and again %+v with %+v", first, again, v)
	}
	settle(t, here, first, 1)
	settle(t, there, again, 0)
	expectLeft(t, here, "settled twice", "k=a", 9)

	// Another cost is another reservation: a settlement must know what was charged.
	_, other := reserve(t, here, "job", "k=a", 5)
	expectLeft(t, here, "another cost", "k=a", 4)
	settle(t, here, other, 0)
	expectLeft(t, here, "and cancelled", "k=a", 9)

	cost := int64(3)
	for range 3 {
		v, err := one(t.Context(), there, named("job", One("d", part("k=a", 0).Entries, &cost)))
		if err != nil || remaining(v) != 6 {
			t.Errorf("%+v, %v: one call for three units leaves 6", v, err)
		}
	}
	expectLeft(t, here, "a call of the same name", "k=a", 6)
	_ = must(one(t.Context(), here, One("d", part("k=a", 0).Entries, &cost)))(t)
	expectLeft(t, here, "a call without one", "k=a", 3)

	// With another cost it is a new call. Under another number of limits it is not.
	more := deciderOn(t, "domain: d\ndescriptors:\n- {key: k, limits: [10/6h, 9/5h]}\n", store)
	cost = 1
	for _, d := range []*Decider{more, here, more} {
		_ = must(one(t.Context(), d, named("job", One("d", part("k=a", 0).Entries, &cost))))(t)
	}
	reserve(t, more, strings.Repeat("x", MaxIDLength), "k=a", 1)
	expectLeft(t, here, "under other limits", "k=a", 1)
}

// A reservation is settled under the limits that it was made with.
func TestTheConfigurationChangesMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		left int64
	}{
		"raised":            {"- {key: k, limits: [20/6h]}", 18},
		"lowered":           {"- {key: k, limits: [3/6h]}", 1},
		"a shorter window":  {"- {key: k, limits: [10/1h]}", 8},
		"another algorithm": {"- {key: k, limits: [10/6h], algorithm: gcra}", 10}, // which counts by itself
		"a second limit":    {"- {key: k, limits: [10/6h, 5/1m]}", 3},
	} {
		d, _ := decider(t, ten)
		_, r := reserve(t, d, "", "k=a", 6)
		use(t, d, "domain: d\ndescriptors:\n"+c.text+"\n")
		settle(t, d, r, 2)
		expectLeft(t, d, name, "k=a", c.left)
	}
}

// Every admitted request has something to settle, even where nothing was charged.
func TestWhatIsNotChargedIsSettledToo(t *testing.T) {
	d, _ := decider(t, `
domain: d
descriptors:
- {key: shadow, limits: [1/1m], shadow_mode: true}
- {key: free, rate_limit: {unlimited: true}}
- {key: strict, limits: [5/1m], count_refused: true}
`)
	for _, entries := range []string{"nobody=a", "free=a", "shadow=a"} {
		_, r := reserve(t, d, "", entries, 2)
		if r.Units != 0 {
			t.Errorf("%s: %+v", entries, r)
		}
		settle(t, d, r, 1)
	}
	expectLeft(t, d, "what would have been refused", "shadow=a", 1)
	_, r := reserve(t, d, "", "shadow=a", 1)
	expectLeft(t, d, "what would not have been", "shadow=a", 0)
	settle(t, d, r, 0)
	expectLeft(t, d, "and was cancelled", "shadow=a", 1)

	if _, _, err := d.Reserve(t.Context(), One("d", part("strict=a", 0).Entries, nil)); !errors.Is(err, ErrCountsRefused) {
		t.Errorf("count_refused: %v", err)
	}
	expectLeft(t, d, "count_refused", "strict=a", 5)
	for _, used := range []int64{-1, sash.MaxUnits + 1} {
		if err := d.Settle(t.Context(), r, used); !errors.Is(err, sash.ErrInvalidCost) {
			t.Errorf("%d used: %v", used, err)
		}
	}
}

// A lastFails fails parts that are not of k. When it is asked about a shadow, the caller leaves.
type lastFails struct {
	*memstore.Store
	leave context.CancelFunc
}

func (s lastFails) Do(ctx context.Context, b *driver.Batch) error {
	switch key := b.Ops[0].Key; {
	case strings.Contains(key, "shadow"):
		s.leave()
		return ctx.Err()
	case b.Ops[0].MayCharge() > 0 && !strings.Contains(key, "k"):
		return errors.New("broken")
	}
	return s.Store.Do(ctx, b)
}

// A part that does not bind fails after those that bind were charged. The request goes ahead, and its charge can be settled.
// Where a quota fails so, the request does not, and leaves no charge.
func TestALastPartThatFailsLeavesNoCharge(t *testing.T) {
	leaving, leave := context.WithCancel(t.Context())
	d := deciderOn(t, `
domain: d
descriptors:
- {key: k, limits: [10/6h], tokens: {format: openai}}
- {key: shadow, limits: [1/1m], shadow_mode: true}
- {key: quota, limits: [1/1m], quota_mode: true}
- {key: other, limits: [1/1m], quota_mode: true}
`, lastFails{memstore.New(nil), leave})
	answers, held, err := d.ReserveAll(leaving, Request{Domain: "d", Parts: []Part{part("k=a", 6), part("shadow=a", 1)}})
	if err != nil || !answers[0].Allowed() || held[0].Units != 6 || answers[1].Source != sash.FromPolicy {
		t.Fatalf("%+v, %+v, %v", answers, held, err)
	}
	expectLeft(t, d, "while the request runs", "k=a", 4)
	settle(t, d, &held[0], 2)
	expectLeft(t, d, "when it is over", "k=a", 8)

	_, _, err = d.ReserveAll(t.Context(), Request{Domain: "d", Parts: []Part{part("k=b", 6), part("quota=a", 1), part("other=a", 1)}})
	if err == nil {
		t.Error("admitted without a quota")
	}
	expectLeft(t, d, "a quota that fails", "k=b", 10)
}

// What an instance decides alone only that instance can settle.
func TestAReservationWhileTheStoreIsUnavailable(t *testing.T) {
	const text = "domain: d\ndescriptors:\n- {key: local, limits: [10/6h], on_unavailable: local}\n- {key: open, limits: [10/6h], on_unavailable: open}\n"
	here, there := alone(t, text), alone(t, text)
	v, r := reserve(t, here, "", "local=a", 4)
	if v.Source != sash.FromLocal {
		t.Fatalf("%+v", v)
	}
	if err := there.Settle(t.Context(), r, 0); !errors.Is(err, ErrKept) {
		t.Errorf("by another instance: %v", err)
	}
	settle(t, here, r, 1)
	expectLeft(t, here, "of this instance's share", "local=a", 4)

	// A call with an ID is written to the store as a whole when that is back.
	_, r = reserve(t, here, "job", "local=b", 4)
	if err := here.Settle(t.Context(), r, 0); !errors.Is(err, ErrKept) {
		t.Errorf("with an ID: %v", err)
	}
	_, r = reserve(t, here, "", "open=a", 4)
	if r.Units != 0 {
		t.Errorf("open: %+v", r)
	}
	settle(t, there, r, 0)
}

// Refunds in any order, each within refund_within of its charge: no window holds more than N of what was used in the end. Under a
// rule without it nothing is given back.
func TestARefundFreesNoOtherCharge(t *testing.T) {
	const text = `
domain: d
descriptors:
- {key: short, limits: [20/10s], refund_within: 9s}
- {key: two, limits: [20/10s, 50/30s], refund_within: 29s}
- {key: none, limits: [20/10s]}
`
	type charge struct {
		at    time.Time
		units int64 // what is left of them
	}
	for key, latest := range map[string]time.Duration{"short": 9 * time.Second, "two": 29 * time.Second} {
		t.Run(key, func(t *testing.T) {
			gave := false
			for seed := range uint64(50) {
				random := rand.New(rand.NewPCG(seed, 1))
				d, c := decider(t, text)
				var all []charge
				for range 200 {
					c.move(time.Duration(random.IntN(3)/2*random.IntN(3000)) * time.Millisecond)
					p := part(key, 1+random.Int64N(9))
					if i := random.IntN(2 * (1 + len(all))); i < len(all) && i%3 == 0 && all[i].units > 0 && c.now.Sub(all[i].at) <= latest {
						p.Refund, p.Cost = true, min(p.Cost, all[i].units)
						all[i].units -= p.Cost
						before := ask(t, d, part(key, 0))
						gave = gave || ask(t, d, p) != before
					} else if ask(t, d, p)[:2] == "ok" {
						all = append(all, charge{c.now, p.Cost})
					}
				}
				for _, last := range all {
					used := int64(0)
					for _, one := range all {
						if !one.at.After(last.at) && last.at.Sub(one.at) < 10*time.Second {
							used += one.units
						}
					}
					if used > 20 {
						t.Fatalf("seed %d: %d units of 20 were used in 10 s", seed, used)
					}
				}
			}
			if !gave {
				t.Error("nothing was given back")
			}
		})
	}
	d, c := decider(t, text)
	want(t, "charged", ask(t, d, part("none", 12)), "ok:8")
	c.move(10 * time.Second)
	want(t, "by others", ask(t, d, part("none", 20)), "ok:0")
	late := part("none", 12)
	late.Refund = true
	want(t, "after its charge has left", ask(t, d, late), "ok:0")
}
