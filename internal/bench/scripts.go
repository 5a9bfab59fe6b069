package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

var (
	//go:embed sortedset.lua
	sortedSetText string
	//go:embed callsonly.lua
	callsOnlyText string
)

// A script is a way to decide on Redis: the calls of one decision on a key.
type script struct {
	name  string
	calls func(key string, cost int64, limits []sash.Limit) []call
}

// A call is one EVALSHA.
type call struct {
	script *redisstore.Script
	keys   []string
	args   func() []any // anew for every repetition
}

// A state is what a log holds when it is measured.
type state struct {
	name    string
	cost    int64
	keys    int // the calls are on these in turn
	fill    int // decisions before those that are measured
	limits  []sash.Limit
	leaving int // if not 0, the windows hold about so many calls, and one leaves as one comes
}

func states(calls int) []state {
	hour := []sash.Limit{sash.Every(100_000, time.Hour)}
	return []state{
		{name: "with room", cost: 1, keys: 1, limits: hour},
		{name: "ten calls a key", cost: 1, keys: max(1, calls/10), limits: []sash.Limit{sash.PerMinute(60)}},
		{name: "300 in the window, one leaves as one comes", cost: 1, keys: 1, leaving: 300},
		{name: "refused", cost: 1, keys: 1, fill: 300, limits: []sash.Limit{sash.Every(300, time.Hour)}},
		{name: "cost 100", cost: 100, keys: 1, limits: hour},
		{name: "two windows", cost: 1, keys: 1, limits: []sash.Limit{sash.Every(50_000, time.Minute), hour[0]}},
	}
}

// bySash takes the calls from redisstore, so that what users run is measured.
func bySash(name string, opts sash.Options) script {
	return script{name, func(key string, cost int64, limits []sash.Limit) []call {
		o := opts
		if o.Algorithm == sash.SlidingBuckets {
			o.Resolution = max(limits[0].Window/100, time.Microsecond).Truncate(time.Microsecond)
		}
		policy := must(sash.NewPolicy(&o, limits...))
		var rec recorder
		_, _ = driver.Decide(context.Background(), redisstore.New(&rec, nil), driver.Request{Key: key, Cost: cost, Policy: policy})
		return []call{rec.call}
	}}
}

// A recorder is a redisstore.Scripter that records the call.
type recorder struct{ call call }

func (r *recorder) Run(_ context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	r.call = call{script, keys, func() []any { return []any{arg} }}
	return "", errors.New("recorded")
}

func (r *recorder) Cluster() bool { return false }

// byHand is a script that services write, one call for each limit.
func byHand(name, text string) script {
	s := redisstore.NewScript(name, text)
	serial := int64(0)
	return script{name, func(key string, cost int64, limits []sash.Limit) (all []call) {
		for i, l := range limits {
			all = append(all, call{s, []string{fmt.Sprintf("hand:%s:%d", key, i)}, func() []any {
				serial++
				return []any{l.Window.Microseconds(), l.Units, cost, strconv.FormatInt(1e15+serial, 16)}
			}})
		}
		return all
	}}
}

var scripts = []script{
	bySash("sliding-log", sash.Options{}), byHand("sorted set by hand", sortedSetText), byHand("calls of the log only", callsOnlyText),
	bySash("sorted-set-log", sash.Options{Algorithm: sash.SortedSetLog}), bySash("sliding-buckets", sash.Options{Algorithm: sash.SlidingBuckets}),
	bySash("sliding-counter", sash.Options{Algorithm: sash.SlidingCounter}), bySash("fixed-window", sash.Options{Algorithm: sash.FixedWindow}),
	bySash("gcra", sash.Options{Algorithm: sash.GCRA}), byHand("empty script", "return 1"),
}

// decide makes n decisions in pipelines and returns the microseconds that Redis took for one, and the time between two.
func (s *server) decide(by script, keys int, cost int64, limits []sash.Limit, n int) (micros float64, period time.Duration) {
	ctx := context.Background()
	calls := make([][]call, keys)
	for i := range calls {
		calls[i] = by.calls(fmt.Sprintf("client:%06d", i), cost, limits)
	}
	check(s.ScriptLoad(ctx, calls[0][0].script.Text).Err())
	check(s.ConfigResetStat(ctx).Err())
	began := time.Now()
	for done := 0; done < n; {
		pipe := s.Pipeline()
		for ; done < n && pipe.Len() < 64; done++ {
			for _, c := range calls[done%keys] {
				pipe.EvalSha(ctx, c.script.SHA1, c.keys, c.args()...)
			}
		}
		_, err := pipe.Exec(ctx)
		check(err, by.name)
	}
	period = time.Since(began) / time.Duration(n)
	return s.scriptTime() / float64(n), period
}

func (s *server) once(by script, in state, n int) float64 {
	s.flush()
	limits, fill := in.limits, in.fill
	if in.leaving > 0 { // a window of as many calls as the script makes in that time
		_, period := s.decide(by, 1, 1, []sash.Limit{sash.Every(100_000, 5*time.Millisecond)}, max(n/4, 640))
		window := (time.Duration(in.leaving) * period).Truncate(time.Microsecond)
		limits, fill = []sash.Limit{sash.Every(100_000, max(sash.MinWindow, window))}, in.leaving*12/10
	}
	s.decide(by, in.keys, in.cost, limits, max(fill, 1))
	micros, _ := s.decide(by, in.keys, in.cost, limits, n)
	return micros
}

func (s *server) memory(by script, n int) int64 {
	ctx := context.Background()
	s.flush()
	s.decide(by, 1, 1, []sash.Limit{sash.Every(100_000, time.Hour)}, n)
	return must(s.MemoryUsage(ctx, must(s.RandomKey(ctx).Result()), 0).Result())
}

func (b *bench) scripts() {
	s := startRedis()
	defer s.Stop()
	t := table{name: "server time of a decision, µs", versions: []string{s.version}, head: []string{"script"}}
	times := make([][]figure, len(scripts))
	for i := range times {
		times[i] = make([]figure, len(states(b.calls)))
	}
	for k, in := range states(b.calls) {
		b.say("server time, %s", in.name)
		t.head = append(t.head, in.name)
		b.alternate(len(scripts), func(i int) { times[i][k] = append(times[i][k], s.once(scripts[i], in, b.calls)) })
	}
	for i, by := range scripts {
		cells := []any{by.name}
		for _, f := range times[i] {
			cells = append(cells, f)
		}
		t.row(cells...)
	}
	sizes := []int{1, 10, 60, 300, 1000, 10_000}
	memory := table{name: "bytes of a key", head: []string{"script"}}
	for _, n := range sizes {
		memory.head = append(memory.head, fmt.Sprintf("%d calls", n))
	}
	for _, by := range scripts[:8] {
		if by.name == "calls of the log only" {
			continue
		}
		cells := []any{by.name}
		for _, n := range sizes {
			cells = append(cells, s.memory(by, n))
		}
		memory.row(cells...)
	}
	b.tables = append(b.tables, t, memory)
}
