package decide

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

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
	want(t, "b is full", ask(t, d, part("a", 1), part("b", 1)), "ok:4 | OVER:0")
	want(t, "several algorithms", ask(t, d, part("a", 1), part("c", 3), part("big", 7), part("b", 1)), "ok:4 | ok:9 | ok:1000000 | OVER:0")
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

func TestOnRedis(t *testing.T) {
	server := redistest.Start(t)
	allOrNothing(t, onRedis(t, redis.NewClient(&redis.Options{Addr: server.Addr()}), hours))
}

func TestOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	allOrNothing(t, onRedis(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaxRedirects: 3}), hours))
}

// Two requests want the last unit of two subjects in different slots: one of them is admitted.
func TestTwoRequestsOnAClusterDoNotRefuseEachOther(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaxRedirects: 3})
	d := onRedis(t, client, "domain: d\ndescriptors: [{key: a, limits: [1/6h]}, {key: b, limits: [1/6h]}]\n")
	const rounds = 300
	var admitted [3]int
	for round := range rounds {
		a, b := part(fmt.Sprint("a=", round), 1), part(fmt.Sprint("b=", round), 1)
		var answers [2]string
		var callers sync.WaitGroup
		for i, parts := range [][]Part{{a, b}, {b, a}} {
			callers.Go(func() { answers[i] = ask(t, d, parts...) })
		}
		callers.Wait()
		n := 0
		for _, answer := range answers {
			if !strings.Contains(answer, "OVER") {
				n++
			}
		}
		admitted[n]++
	}
	t.Logf("of %d rounds %d admitted no request, %d one, %d both", rounds, admitted[0], admitted[1], admitted[2])
	if admitted[1] != rounds {
		t.Error("a round admitted none or both")
	}
}

func TestRefundsOnRedis(t *testing.T) {
	server := redistest.Start(t)
	for _, algorithm := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets, sash.FixedWindow} {
		t.Run(algorithm.String(), func(t *testing.T) {
			d := onRedis(t, redis.NewClient(&redis.Options{Addr: server.Addr()}),
				"domain: d\ndescriptors:\n- {key: "+algorithm.String()+", limits: [10/300d], algorithm: "+algorithm.String()+"}\n")
			back := func(units int64) Part {
				p := part(algorithm.String(), units)
				p.Refund = true
				return p
			}
			for _, units := range []int64{1, 1, 3, 1, 4} {
				ask(t, d, part(algorithm.String(), units))
			}
			want(t, "one unit", ask(t, d, back(1)), "ok:1")
			want(t, "across charges", ask(t, d, back(5)), "ok:6")
			want(t, "more than is used", ask(t, d, back(100)), "ok:10")
			want(t, "nothing is owed", ask(t, d, part(algorithm.String(), 10)), "ok:0")
		})
	}
}

// The refunds of a request cost Redis a few calls, whatever they ask for: 64 of subjects with many small charges took
// 8,320, and kept it from everybody else.
func TestRefundsCostRedisFewCalls(t *testing.T) {
	server := redistest.Start(t)
	d := onRedis(t, redis.NewClient(&redis.Options{Addr: server.Addr()}),
		"domain: d\ndescriptors:\n- {key: a, limits: [1000/6h]}\n- {key: tried, limits: [1000/6h], candidate: {limits: [900/6h]}}\n")
	var refunds []Part
	for i := range 64 {
		name := fmt.Sprint([]string{"a=", "tried="}[i%2], i)
		for range 100 {
			ask(t, d, part(name, 1))
		}
		back := part(name, 1000)
		back.Refund = true
		refunds = append(refunds, back)
	}
	for _, n := range []int{1, MaxRefunds, 64} { // 64 are rejected by the port
		server.Must(t, "CONFIG", "RESETSTAT")
		ask(t, d, refunds[:n]...)
		stats, _ := server.Must(t, "INFO", "commandstats").(string)
		calls := 0
		for _, command := range []string{"evalsha", "eval"} {
			_, line, _ := strings.Cut(stats, "cmdstat_"+command+":calls=")
			some, _, _ := strings.Cut(line, ",")
			more, _ := strconv.Atoi(some)
			calls += more
		}
		t.Logf("%d refunds: %d calls", n, calls)
		if most := 3 * n; calls > most { // two a refund, because a candidate counts apart, and EVAL after the first EVALSHA
			t.Errorf("%d refunds took %d calls of scripts, more than %d", n, calls, most)
		}
	}
}
