package decide

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

// Peeks and charges of random units in random requests, beside an oracle that has one sum for each rule: the windows do not
// end. Units that are always charged count whatever becomes of the request. No request ends without an answer.
func TestPeeksAndChargesAreWhatAnOracleSays(t *testing.T) {
	const text = `
domain: d
descriptors:
- {key: a, limits: [9/6h]}
- {key: fixed, limits: [5/6h], algorithm: fixed-window}
- {key: spares, limits: [7/6h], count_refused: false}
- {key: shadow, limits: [3/6h], shadow_mode: true}
- {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: neither, rate_limit: {unit: day, requests_per_unit: 0}, shadow_mode: true}
- {key: free, rate_limit: {unlimited: true}}
`
	units := map[string]int64{"a": 9, "fixed": 5, "spares": 7, "shadow": 3, "own": 4}
	keys := []string{"a", "fixed", "spares", "shadow", "never", "neither", "free", "own", "none", "nothing"}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		d, _ := decider(t, text)
		used := make(map[string]int64)
		for range 12 {
			var parts []Part
			admitted, asked, always := true, make(map[string]int64), make(map[string]bool)
			for _, i := range random.Perm(len(keys))[:1+random.IntN(5)] {
				key := keys[i]
				p := part(key, int64(random.IntN(4)*(1+7*random.IntN(2)*random.IntN(2))))
				p.Always = random.IntN(2) == 0
				switch key {
				case "own":
					p.RequestLimit = &sash.Limit{Units: 4, Window: time.Hour}
				case "none":
					p.RequestLimit = &sash.Limit{Window: time.Hour}
				}
				parts, asked[key], always[key] = append(parts, p), p.Cost, p.Always && key != "spares"
				most, limited := units[key]
				admitted = admitted && key != "never" && key != "none" && (!limited || key == "shadow" || used[key]+p.Cost <= most)
			}
			req := Request{Domain: "d", Parts: parts, Lenient: true}
			looked, err := d.Peek(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			answers, err := d.Decide(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			room, goes := true, true
			for i := range answers {
				room, goes = room && looked[i].Allowed(), goes && answers[i].Allowed()
			}
			if room != admitted || goes != admitted {
				t.Fatalf("seed %d: %v with %v used: a look says %v, the decision %v, want %v", seed, asked, used, room, goes, admitted)
			}
			for key, n := range asked {
				if always[key] || admitted && used[key]+n <= units[key] {
					used[key] += n
				}
			}
		}
	}
	d, _ := decider(t, text)
	one := int64(1)
	for name, call := range map[string]func(Request) error{
		"Decide":  func(req Request) error { _, err := d.Decide(t.Context(), req); return err },
		"Reserve": func(req Request) error { _, _, err := d.Reserve(t.Context(), req); return err },
		"an ID": func(req Request) error {
			req.ID = "x"
			_, err := d.Decide(t.Context(), req)
			return err
		},
		"waiting": func(req Request) error {
			req.Within = time.Second
			_, err := d.Decide(t.Context(), req)
			return err
		},
	} {
		for cost := range int64(2) {
			req := One("d", []config.Entry{{Key: "never"}}, &cost)
			req.Lenient = true
			if err := call(req); err != nil {
				t.Errorf("%s of %d units: %v", name, cost, err)
			}
		}
		if err := call(One("d", []config.Entry{{Key: "never"}}, &one)); !errors.Is(err, sash.ErrCostAboveLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
