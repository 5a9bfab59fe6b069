package redisbench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

// batch is how many calls one pipeline sends.
const batch = 64

// A bench measures contenders on a server.
type bench struct{ *server.Server }

// A tally is the result of a number of decisions.
type tally struct {
	decisions int
	allowed   int     // decisions of which every call was admitted
	left      int64   // units left after the last decision
	micros    float64 // server time of one decision
	processor float64 // microseconds that the server used of the processor for one decision
	wall      time.Duration
}

// decide makes n decisions, the jobs in turn, in pipelines.
func (b bench) decide(c contender, jobs []job, n int) (tally, error) {
	ctx := context.Background()
	calls := make([][]call, len(jobs))
	for i, j := range jobs {
		calls[i] = c.calls(j)
	}
	for _, call := range calls[0] { // the scripts of all jobs
		if err := b.ScriptLoad(ctx, call.script.Text).Err(); err != nil {
			return tally{}, err
		}
	}
	if err := b.ConfigResetStat(ctx).Err(); err != nil {
		return tally{}, err
	}
	t := tally{decisions: n}
	before, err := b.Processor()
	if err != nil {
		return t, err
	}
	began := time.Now()
	for done := 0; done < n; {
		pipe := b.Pipeline()
		var sent []job // of each decision
		for ; done < n && pipe.Len() < batch; done++ {
			i := done % len(jobs)
			sent = append(sent, jobs[i])
			for _, call := range calls[i] {
				pipe.EvalSha(ctx, call.script.SHA1, call.keys, call.args()...)
			}
		}
		replies, err := pipe.Exec(ctx)
		if err != nil {
			return t, fmt.Errorf("%s: %w", c.name, err)
		}
		per := len(calls[0])
		for i, j := range sent {
			all := true
			for _, reply := range replies[i*per : (i+1)*per] {
				allowed, left, err := c.read(j, reply.(*redis.Cmd).Val())
				if err != nil {
					return t, err
				}
				all, t.left = all && allowed, left
			}
			if all {
				t.allowed++
			}
		}
	}
	t.wall = time.Since(began)
	after, err := b.Processor()
	if err != nil {
		return t, err
	}
	t.processor = (after - before) / float64(n)
	micros, err := b.ScriptTime()
	t.micros = micros / float64(n)
	return t, err
}

// period measures how often a contender decides on a busy connection.
func (b bench) period(c contender, cost int64, limits int) (time.Duration, error) {
	j := job{"period", cost, []sash.Limit{sash.Every(sash.MaxEntries, 5*time.Millisecond)}}
	if limits > 1 {
		j.limits = append(j.limits, sash.Every(sash.MaxEntries-1, 20*time.Millisecond))
	}
	if _, err := b.decide(c, []job{j}, 2000); err != nil {
		return 0, err
	}
	t, err := b.decide(c, []job{j}, 4000)
	return t.wall / 4000, err
}

// round brings the log into the load's state and measures n decisions.
func (b bench) round(c contender, l load, n int) (tally, error) {
	if err := b.Flush(); err != nil {
		return tally{}, err
	}
	var period time.Duration
	if l.spans != nil {
		var err error
		if period, err = b.period(c, l.cost, len(l.spans)); err != nil {
			return tally{}, err
		}
	}
	jobs := l.jobs(period)
	if l.fill > 0 {
		if _, err := b.decide(c, jobs, l.fill); err != nil {
			return tally{}, err
		}
	}
	return b.decide(c, jobs, n)
}

// A cell is one contender under one load.
type cell struct {
	time  report.Figure // microseconds of server time per decision
	share report.Figure // percent admitted
}

// rounds measures every contender under every load, each once per round, in turn. It returns the cells by load
// and contender.
func (b bench) rounds(rounds, n int, loads []load, contenders ...contender) ([][]cell, error) {
	cells := make([][]cell, len(loads))
	for i := range cells {
		cells[i] = make([]cell, len(contenders))
	}
	for range rounds {
		for i, l := range loads {
			for k, c := range contenders {
				t, err := b.round(c, l, n)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", c.name, l.name, err)
				}
				cells[i][k].time.Add(t.micros)
				cells[i][k].share.Add(100 * float64(t.allowed) / float64(t.decisions))
			}
		}
	}
	return cells, nil
}

// memory returns the bytes that a key takes for each of its entries.
func (b bench) memory(c contender, entries int, units int64) (float64, error) {
	if err := b.Flush(); err != nil {
		return 0, err
	}
	t, err := b.decide(c, []job{{"memory", 1, []sash.Limit{sash.Every(units, time.Hour)}}}, entries)
	if err != nil {
		return 0, err
	}
	if t.allowed != entries {
		return 0, fmt.Errorf("redisbench: %s admitted %d of %d", c.name, t.allowed, entries)
	}
	bytes, err := b.KeyMemory()
	return bytes / float64(entries), err
}

// watch makes the slow log record calls that take the given microseconds or longer.
func (b bench) watch(micros string) error {
	ctx := context.Background()
	for name, value := range map[string]string{"slowlog-max-len": "100000", "slowlog-log-slower-than": micros} {
		if err := b.ConfigSet(ctx, name, value).Err(); err != nil {
			return err
		}
	}
	return b.SlowLogReset(ctx).Err()
}

// slowest returns the microseconds of the slowest single EVALSHA in the slow log.
func (b bench) slowest() (float64, error) {
	entries, err := b.SlowLogGet(context.Background(), -1).Result()
	most := time.Duration(0)
	for _, e := range entries {
		if len(e.Args) > 0 && strings.EqualFold(e.Args[0], "EVALSHA") {
			most = max(most, e.Duration)
		}
	}
	return float64(most.Microseconds()), err
}

// slowestWhileFilling returns the slowest call while a key grows from nothing to the most entries.
func (b bench) slowestWhileFilling(c contender) (float64, error) {
	if err := b.Flush(); err != nil {
		return 0, err
	}
	if err := b.watch("20"); err != nil {
		return 0, err
	}
	if _, err := b.decide(c, []job{{"fill", 1, []sash.Limit{sash.Every(sash.MaxEntries, time.Hour)}}}, sash.MaxEntries); err != nil {
		return 0, err
	}
	return b.slowest()
}

// afterBurst fills a key, keeps it alive with one later call, waits until the burst has left a window of three
// seconds, and returns the microseconds of the next call. Further limits may be longer.
func (b bench) afterBurst(c contender, longer ...sash.Limit) (float64, error) {
	const window = 3 * time.Second
	if err := b.Flush(); err != nil {
		return 0, err
	}
	jobs := []job{{"burst", 1, append([]sash.Limit{sash.Every(sash.MaxEntries, window)}, longer...)}}
	if _, err := b.decide(c, jobs, sash.MaxEntries-2); err != nil {
		return 0, err
	}
	time.Sleep(window / 2)
	if _, err := b.decide(c, jobs, 1); err != nil {
		return 0, err
	}
	time.Sleep(window/2 + 200*time.Millisecond)
	if err := b.watch("0"); err != nil {
		return 0, err
	}
	if _, err := b.decide(c, jobs, 1); err != nil {
		return 0, err
	}
	return b.slowest()
}
