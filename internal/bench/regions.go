package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/lease"
)

// ways are the times to the home and back of three regions.
var ways = []time.Duration{2 * time.Millisecond, 80 * time.Millisecond, 150 * time.Millisecond}

// newFarWay returns a proxy for a server that passes bytes in each direction later by a delay.
func newFarWay(to string, delay time.Duration) *toxiproxy.Proxy {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	way := toxiproxy.NewProxy(server, "far way", "127.0.0.1:0", to)
	check(way.Start())
	for _, stream := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"name": %q, "type": "latency", "stream": %[1]q, "attributes": {"latency": %d}}`, stream, delay.Milliseconds())
		must(way.Toxics.AddToxicJson(strings.NewReader(toxic)))
	}
	return way
}

// regions measures one limit of 10,000 in 20 s over three regions. Each region leases units from a home and decides with a
// Redis nearby; the alternative is one Redis for all. Callers come at four fifths of the limit, spread over the regions.
func (b *bench) regions() {
	t := table{name: "one limit over three regions", head: []string{"way to the home and back", "leases: p50 ms", "p99 ms", "one Redis: p50 ms", "p99 ms"}}
	home := startRedis()
	defer home.Stop()
	t.versions = []string{home.version, "10,000 in 20 s, leases of 1 s, 300 calls a second"}
	for _, trip := range ways {
		b.say("a region %v from the home", trip)
		cells := []any{trip}
		for _, f := range b.region(home, trip) {
			for _, micros := range []figure{f.p50, f.p99} {
				var ms figure
				for _, v := range micros {
					ms = append(ms, v/1000)
				}
				cells = append(cells, ms)
			}
		}
		t.row(cells...)
	}
	b.tables = append(b.tables, t)
}

// region measures a region: with leases in its own Redis, and by the home alone.
func (b *bench) region(home *server, trip time.Duration) []figures {
	way, near := newFarWay(home.Addr(), trip/2), startRedis()
	defer near.Stop()
	defer way.Stop()
	far := func(connections int) driver.Store {
		return goredisstore.New(redis.NewClient(&redis.Options{Addr: way.Listen, PoolSize: connections}), nil)
	}
	leased := must(lease.Shared(far(0), overGoRedis(near.Addr()), time.Second, nil))
	limit := workload{units: 10_000, window: 20 * time.Second}
	long := *b
	long.turn *= 6 // the first quarter is until leases are there
	results := long.measure(workload{keys: 1, callers: 60, perSecond: 300}, []contender{
		b.inProcess("leases", openSash(leased, limit)),
		b.inProcess("one Redis", openSash(far(100), limit)), // each call goes home
	}, func(int) float64 { return 0 }, home.flush)
	check(leased.Release(b.ctx))
	return results
}
