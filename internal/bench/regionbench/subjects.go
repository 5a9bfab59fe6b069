package regionbench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/redistest"
)

// inFlight is how many calls wait for an answer at the same time where subjects are many.
const inFlight = 2048

// subjects makes one call on each of many subjects in the furthest region, and measures what that takes there.
func (b *bench) subjects() error {
	n := b.report.Keys / 5
	b.report.Say("%d subjects", n)
	last := len(delays) - 1
	d := b.planet.in(last, decider{
		Kind: leased, Client: rueidisName, Prefix: "many:", Limit: limit{100, 20 * time.Minute}, Lease: time.Minute,
	})
	decide, done, err := d.open()
	if err != nil {
		return err
	}
	defer done()
	near := b.planet.regions[last].redis
	before, err := b.usage(near)
	if err != nil {
		return err
	}
	began := time.Now()
	var next, wrong atomic.Int64
	var group sync.WaitGroup
	for range inFlight {
		group.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if a, err := decide(ctx, "subject:"+strconv.FormatInt(i, 10), 1); err != nil || !a.admitted {
					wrong.Add(1)
				}
				cancel()
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	after, err := b.usage(near)
	if err != nil {
		return err
	}
	table := report.NewTable("subjects, one call each", "bytes a subject in the region", "calls to the home a call", "calls/s", "% failed")
	each := 1 / float64(n)
	table.Row(n, fmt.Sprintf("%.0f", (after.bytes-before.bytes)*each), report.Number((after.calls-before.calls)*each),
		report.Number(float64(n)/took.Seconds()), percent(wrong.Load(), int64(n)))
	b.data["Subjects"], b.data["InFlight"] = table, inFlight
	return nil
}

// A usage is what a region has used.
type usage struct{ bytes, calls float64 }

func (b *bench) usage(near *redistest.Server) (u usage, err error) {
	calls, err := scripts(b.planet.home)
	if err != nil {
		return u, err
	}
	used, err := info(near, "memory", "used_memory")
	if err != nil {
		return u, err
	}
	clients, err := info(near, "memory", "mem_clients_normal")
	if err != nil {
		return u, err
	}
	all, err := strconv.ParseFloat(used, 64)
	if err != nil {
		return u, err
	}
	theirs, err := strconv.ParseFloat(clients, 64)
	return usage{all - theirs, float64(calls)}, err
}
