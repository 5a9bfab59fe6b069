package decide

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
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
	for seed := range uint64(100) {
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
			looked := must(d.Peek(t.Context(), req))(t)
			answers := must(d.Decide(t.Context(), req))(t)
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
		"Decide":     func(req Request) error { _, err := d.Decide(t.Context(), req); return err },
		"Reserve":    func(req Request) error { _, _, err := d.Reserve(t.Context(), req); return err },
		"ReserveAll": func(req Request) error { _, _, err := d.ReserveAll(t.Context(), req); return err },
		"Peek":       func(req Request) error { _, err := d.Peek(t.Context(), req); return err },
		"quotas": func(req Request) error {
			req.Quota, req.Parts = true, append(req.Parts, req.Parts[0], part("a", 0))
			_, err := d.Decide(t.Context(), req)
			return err
		},
		"a refund": func(req Request) error {
			req.Parts = slices.Clone(req.Parts)
			req.Parts[0].Refund = req.Lenient
			_, err := d.Decide(t.Context(), req)
			return err
		},
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

// onRedis returns a decider on a store of Redis, where time is real: windows are hours.
func onRedis(t *testing.T, client redis.UniversalClient, text string) *Decider {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	return deciderOn(t, text, goredisstore.New(client, nil))
}

const hours = `
domain: d
descriptors:
- {key: a, limits: [5/6h]}
- {key: b, limits: [2/6h]}
- {key: c, limits: [9/6h], algorithm: fixed-window}
- {key: big, limits: [1000000/6h]}
- {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: shadow, limits: [1/6h], shadow_mode: true}
- {key: tokens, limits: [9/6h], count_refused: true}
`

func allOrNothing(t *testing.T, d *Decider) {
	t.Helper()
	want(t, "first", ask(t, d, part("a", 1), part("b", 2)), "ok:4 | ok:0")
	want(t, "at the limit is not over it", ask(t, d, part("b", 0)), "ok:0")
	want(t, "b is full", ask(t, d, part("a", 1), part("b", 1)), "ok:4 | OVER:0")
	want(t, "several algorithms", ask(t, d, part("a", 1), part("c", 3), part("big", 7), part("b", 1)), "ok:4 | ok:9 | ok:1000000 | OVER:0")
	want(t, "as before, b first", ask(t, d, part("b", 1), part("c", 3), part("big", 7), part("a", 1)), "OVER:0 | ok:9 | ok:1000000 | ok:4")
	want(t, "units that never fit", ask(t, d, part("a", 1), part("c", 10)), "ok:4 | OVER:9")
	want(t, "refused beside a shadow", ask(t, d, part("shadow=other", 1), part("never", 1)), "ok:1 | OVER:0")
	want(t, "all admitted", ask(t, d, part("a", 1), part("c", 3), part("big", 7), part("shadow", 1)), "ok:3 | ok:6 | ok:999993 | ok:0")
	want(t, "a shadow stops nothing", ask(t, d, part("a", 1), part("shadow", 1)), "ok:2 | OVER:0")
	want(t, "no units at all", ask(t, d, part("a", 1), part("never", 1)), "ok:2 | OVER:0")
	want(t, "refusals that count", ask(t, d, part("tokens", 7)), "ok:2")
	want(t, "over", ask(t, d, part("tokens", 7)), "OVER:0")
	want(t, "a look", ask(t, d, part("tokens", 0), part("a", 1)), "OVER:0 | ok:2")
	var parts []Part
	for i := range 9 {
		parts = append(parts, part(fmt.Sprint("a=", i), 1))
	}
	parts = append(parts, part("b", 1))
	want(t, "many", ask(t, d, parts...), strings.Repeat("ok:5 | ", 9)+"OVER:0")
	want(t, "many, admitted", ask(t, d, parts[:9]...), strings.TrimSuffix(strings.Repeat("ok:4 | ", 9), " | "))
}

func TestARefusedRequestChargesNothing(t *testing.T) {
	allOrNothing(t, live(t, hours))
}

func TestOnRedis(t *testing.T) {
	server := redistest.Start(t)
	d := onRedis(t, redis.NewClient(&redis.Options{Addr: server.Addr()}), hours)
	allOrNothing(t, d)
	server.Must(t, "FLUSHALL")
	oneOfAny(t, d)
}

func TestOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaxRedirects: 3})
	d := onRedis(t, client, hours)
	allOrNothing(t, d)
	must(0, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error { return node.FlushAll(ctx).Err() }))(t)
	oneOfAny(t, d)
}

// A refund is one call of Redis, whatever it asks for: those of subjects with many small charges once took 130 each, and
// kept it from everybody else. A candidate counts apart.
func TestARefundCostsRedisOneCall(t *testing.T) {
	server := redistest.Start(t)
	d := onRedis(t, redis.NewClient(&redis.Options{Addr: server.Addr()}),
		"domain: d\ndescriptors:\n- {key: a, limits: [1000/6h], refund_within: 1m, candidate: {limits: [900/6h]}}\n")
	for range 100 {
		ask(t, d, part("a", 1))
	}
	back := part("a", 1000)
	back.Refund = true
	server.Must(t, "CONFIG", "RESETSTAT")
	want(t, "all of them", ask(t, d, back), "ok:1000")
	calls := 0
	for _, command := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var some int
		_, _ = fmt.Sscanf(server.Info(t, "commandstats", command), "calls=%d", &some)
		calls += some
	}
	if calls < 1 || calls > 3 { // two refunds, and EVAL after the first EVALSHA
		t.Errorf("a refund of 100 charges took %d calls of scripts", calls)
	}
}
