package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/lease"
)

// ways are the times to the home and back of three regions.
var ways = []time.Duration{2 * time.Millisecond, 80 * time.Millisecond, 150 * time.Millisecond}

// A farWay passes bytes to an address, each later than it came by a delay, however many are under way.
type farWay struct {
	net.Listener
	delay time.Duration
	group sync.WaitGroup
	conns sync.Map // net.Conn to nothing
}

func newFarWay(to string, delay time.Duration) (*farWay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &farWay{Listener: l, delay: delay}
	w.group.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.conns.Store(near, nil)
			w.conns.Store(far, nil)
			w.group.Go(func() { w.pass(near, far) })
			w.group.Go(func() { w.pass(far, near) })
		}
	})
	return w, nil
}

// pass copies one direction until it ends, and closes both ends.
func (w *farWay) pass(from, to net.Conn) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1<<14)
	w.group.Go(func() {
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		_ = errors.Join(from.Close(), to.Close())
		for range pieces { // until the reader has seen it
		}
	})
	defer close(pieces)
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		if n > 0 {
			pieces <- piece{time.Now().Add(w.delay), append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			return // io.EOF, or closed
		}
	}
}

func (w *farWay) stop() {
	_ = w.Close()
	w.conns.Range(func(c, _ any) bool { _ = c.(io.Closer).Close(); return true })
	w.group.Wait()
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
			way.stop()
			return err
		}
		cells, err := b.region(limit, way.Addr().String(), near.addr, home)
		near.stop()
		way.stop()
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
	options := func(addr string) *redis.Options { return &redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 100} }
	far, near := redis.NewClient(options(homeAddr)), redis.NewClient(options(nearAddr))
	defer far.Close()
	defer near.Close()
	leased, err := lease.Shared(goredisstore.New(far, nil), goredisstore.New(near, nil), time.Second, nil)
	if err != nil {
		return nil, err
	}
	for _, store := range []driver.Store{leased, goredisstore.New(far, nil)} {
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
