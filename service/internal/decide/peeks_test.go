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
	allOrNothing(t, onRedis(t, redis.NewClient(&redis.Options{Addr: server.Addr()}), hours))
}

func TestOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	allOrNothing(t, onRedis(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaxRedirects: 3}), hours))
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

// Every request is observed once, with its parts, their subjects and their answers.
func TestEveryRequestIsObserved(t *testing.T) {
	d, _ := decider(t, `
domain: d
descriptors:
- {key: user, limits: [1/1m]}
- {key: tried, shadow_mode: true, limits: [1/1m]}
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
