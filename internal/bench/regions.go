package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/lease"
)

// ways are the times to the home and back of three regions.
var ways = []time.Duration{2 * time.Millisecond, 80 * time.Millisecond, 150 * time.Millisecond}

// newFarWay returns a proxy for a server that passes bytes in each direction later by a delay.
func newFarWay(to string, delay time.Duration) (*toxiproxy.Proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	way := toxiproxy.NewProxy(server, "far way", "127.0.0.1:0", to)
	err := way.Start()
	for _, stream := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"name": %q, "type": "latency", "stream": %[1]q, "attributes": {"latency": %d}}`, stream, delay.Milliseconds())
		_, failed := way.Toxics.AddToxicJson(strings.NewReader(toxic))
		err = errors.Join(err, failed)
	}
	return way, err
}

// regions measures one limit of 10,000 in 20 s over three regions, each of which decides next door over units that it leases
// from a home, beside one Redis for all. Callers come at four fifths of the limit, spread over the regions.
func (b *bench) regions() error {
	t := table{name: "one limit over three regions", head: []string{"way to the home and back", "leases: p50 ms", "p99 ms", "one Redis: p50 ms", "p99 ms"}}
	home, err := startRedis()
	if err != nil {
		return err
	}
	defer home.stop()
	t.versions = []string{home.version, "10,000 in 20 s, leases of 1 s, 300 calls a second"}
	limit := sash.Every(10_000, 20*time.Second)
	for _, trip := range ways {
		b.say("a region %v from the home", trip)
		way, err := newFarWay(home.addr, trip/2)
		if err != nil {
			return err
		}
		near, err := startRedis()
		if err != nil {
			way.Stop()
			return err
		}
		cells, err := b.region(limit, way.Listen, near.addr, home)
		near.stop()
		way.Stop()
		if err != nil {
			return err
		}
		t.row(append([]any{trip}, cells...)...)
	}
	b.tables = append(b.tables, t)
	return nil
}

// region measures a region: with leases in its own Redis, and by the home alone.
func (b *bench) region(limit sash.Limit, homeAddr, nearAddr string, home *server) (cells []any, err error) {
	far, near := redis.NewClient(&redis.Options{Addr: homeAddr}), redis.NewClient(&redis.Options{Addr: nearAddr})
	one := redis.NewClient(&redis.Options{Addr: homeAddr, PoolSize: 100}) // each call goes home
	defer far.Close()
	defer near.Close()
	defer one.Close()
	leased, err := lease.Shared(goredisstore.New(far, nil), goredisstore.New(near, nil), time.Second, nil)
	if err != nil {
		return nil, err
	}
	for _, store := range []driver.Store{leased, goredisstore.New(one, nil)} {
		limiter, err := sash.New(store, nil, limit)
		if err != nil {
			return nil, err
		}
		var p50, p99 figure
		for range b.rounds {
			if err := home.flush(); err != nil {
				return nil, err
			}
			decide := func(ctx context.Context, key string) (bool, error) {
				res, err := limiter.Allow(ctx, key)
				return res.Allowed, err
			}
			w := workload{keys: 1, callers: 60, perSecond: 300}
			if _, err := load(b.ctx, decide, w, 3*b.turn); err != nil { // until leases are there
				return nil, err
			}
			times, err := load(b.ctx, decide, w, 4*b.turn)
			if err != nil {
				return nil, err
			}
			p50, p99 = append(p50, times.P50/1000), append(p99, times.P99/1000)
		}
		cells = append(cells, p50, p99)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	return cells, leased.Release(ctx)
}
