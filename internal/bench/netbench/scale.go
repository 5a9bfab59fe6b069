package netbench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/redistest"
)

// Scale measures Redis as subjects grow, up to a million, adds it to the document, and returns the targets.
func Scale(progress io.Writer, most, rounds int, long time.Duration, doc *report.Document) ([]report.Target, error) {
	server, err := redistest.Run()
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	c := sashOn(singleRueidis, layers[0])
	table := &report.Table{Head: []string{"subjects", "MiB", "bytes a subject", "script µs a decision", "Redis µs a decision", "decisions/s"}}
	var least, last report.Figure
	for n := 1000; n <= most; n *= 10 {
		fmt.Fprintf(progress, "%s scale: Redis, %d subjects\n", time.Now().Format(time.TimeOnly), n)
		got, err := subjects(server, c, n, rounds, long)
		if err != nil {
			return nil, err
		}
		table.Row(n, fmt.Sprintf("%.1f", got.bytes/(1<<20)), fmt.Sprintf("%.0f", got.bytes/float64(n)), &got.script, &got.server, &got.perSecond)
		if n == 1000 {
			least = got.script
		}
		last = got.script
	}
	doc.Section("Subjects on Redis", fmt.Sprintf(`
Sash plain over %s, %d goroutines, a limit of 1,000 an hour, one call on each subject, and then calls on subjects at random: medians of %d rounds of %v. Bytes are what
used_memory grew by, with the key, its expiry and Redis's tables. The tables double in steps, so bytes move by what they have to spare.`,
		singleRueidis.name, many, rounds, long))
	doc.Table(table)
	return []report.Target{{
		Name:     fmt.Sprintf("script time of a decision at %d subjects : at 1,000", most),
		Want:     2,
		Measured: last.Median() / least.Median(),
	}}, nil
}

type populated struct {
	bytes                     float64
	script, server, perSecond report.Figure
}

// subjects makes n of them and decides on some.
func subjects(server *redistest.Server, c contender, n, rounds int, long time.Duration) (populated, error) {
	var got populated
	if err := flush(server); err != nil {
		return got, err
	}
	o, err := c.open(server.Addr(), quota{limits: []sash.Limit{sash.PerHour(1000)}, cost: 1})
	if err != nil {
		return got, err
	}
	defer o.close()
	name := func(i int) string { return fmt.Sprintf("client:%07d", i) }
	before, err := info(server, "memory", "used_memory", "mem_clients_normal")
	if err != nil {
		return got, err
	}
	if err := fillSubjects(o, n, name); err != nil {
		return got, err
	}
	after, err := info(server, "memory", "used_memory", "mem_clients_normal")
	if err != nil {
		return got, err
	}
	got.bytes = after[0] - after[1] - before[0] + before[1]
	chosen := make([]string, load.Picks)
	for range rounds {
		for i := range chosen {
			chosen[i] = name(rand.IntN(n))
		}
		var used [2]float64
		begin := func() (err error) {
			if _, err = server.Do("CONFIG", "RESETSTAT"); err != nil {
				return err
			}
			used[0], err = processor(server)
			return err
		}
		var script float64
		end := func() (err error) {
			if used[1], err = processor(server); err != nil {
				return err
			}
			script, err = scriptTime(server)
			return err
		}
		out, err := load.Drive(o.decide, chosen, many, long/4, long, begin, end)
		if err != nil {
			return got, err
		}
		if out.Failed > 0 {
			return got, out.Err
		}
		got.script.Add(script)
		got.server.Add((used[1] - used[0]) * 1e6 / float64(out.Decisions))
		got.perSecond.Add(out.PerSecond)
	}
	return got, nil
}

// fillSubjects makes one call on each subject.
func fillSubjects(o *opened, n int, name func(int) string) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	for range 4 * many {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if allowed, err := o.decide(context.Background(), name(i)); err != nil || !allowed {
					err = fmt.Errorf("subject %d: allowed %v: %w", i, allowed, err)
					failed.Store(&err)
					return
				}
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
