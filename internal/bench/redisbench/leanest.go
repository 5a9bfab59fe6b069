package redisbench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"example.com/sash/internal/bench/report"
	"example.com/sash/redisstore"
)

var (
	//go:embed leanset.lua
	leanSet string
	//go:embed leancounter.lua
	leanCounter string
	//go:embed leanfixed.lua
	leanFixed string
)

// A pair is a contender, and the leanest script that gives the same answer for one limit.
type pair struct{ ours, leanest contender }

func (l lineup) pairs() []pair {
	others := make(map[string]contender)
	for _, c := range l.others {
		others[c.name] = c
	}
	return []pair{
		{others["sorted-set log"], byHand("leanest sorted set", leanSet)},
		{others["sliding counter"], byHand("leanest sliding counter", leanCounter)},
		{others["fixed window"], byHand("leanest fixed window", leanFixed)},
		{others["GCRA"], redisRate()},
	}
}

// redisRate is the script of go-redis/redis_rate, as the library sends it.
func redisRate() contender {
	return contender{
		name: "redis_rate v10",
		calls: func(j job) []call {
			var all []call
			for i, l := range j.limits {
				var rec evalRecorder
				limit := redis_rate.Limit{Rate: int(l.Units), Burst: int(l.Units), Period: l.Window}
				_, err := redis_rate.NewLimiter(&rec).AllowN(context.Background(), fmt.Sprintf("%s:%d", j.key, i), limit, int(j.cost))
				if !errors.Is(err, errRecorded) {
					panic(fmt.Sprintf("redisbench: redis_rate made no call: %v", err))
				}
				all = append(all, rec.call)
			}
			return all
		},
		read: func(_ job, reply any) (bool, int64, error) {
			all, ok := reply.([]any)
			if !ok || len(all) != 4 {
				return false, 0, fmt.Errorf("redisbench: redis_rate answered %v", reply)
			}
			allowed, _ := all[0].(int64)
			left, _ := all[1].(int64)
			return allowed > 0, left, nil
		},
	}
}

// An evalRecorder records the script that redis_rate runs.
type evalRecorder struct {
	*redis.Client // nil: nothing else is called
	call          call
}

func (r *evalRecorder) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(noScriptError{})
	return cmd
}

func (r *evalRecorder) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	r.call = call{redisstore.NewScript("redis_rate", script), keys, func() []any { return args }}
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(errRecorded)
	return cmd
}

// noScriptError is the error of a server that does not have a script yet.
type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT No matching script" }
func (noScriptError) RedisError()   {}

// leanest compares the algorithms beside the log with the leanest script for each.
func (r *run) leanest() (report.Table, error) {
	table := report.NewTable("µs of server time a decision", "Sash", "the leanest script", "ratio")
	for _, p := range r.pairs() {
		for _, l := range []load{withRoom(1), fresh(r.Calls), refused(1)} {
			r.Say("%s beside the leanest script, %s", p.ours.name, l.name)
			cells, err := r.rounds(r.Rounds, r.Calls, []load{l}, p.ours, p.leanest)
			if err != nil {
				return table, err
			}
			ours, leanest := cells[0][0].time, cells[0][1].time
			ratio := report.Ratio(ours, leanest)
			table.Row(p.ours.name+", "+l.name, ours, leanest, fmt.Sprintf("%.2f", ratio))
			r.AtMost(1.15, ratio, fmt.Sprintf("%s : %s, %s", p.ours.name, p.leanest.name, l.name))
		}
	}
	return table, nil
}
