package decide

import (
	"math/rand/v2"
	"testing"
	"time"
)

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
