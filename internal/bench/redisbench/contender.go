package redisbench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/redisstore"
)

// SortedSet is the script of a sliding log as it is usually written.
//
//go:embed sortedset.lua
var SortedSet string

// A contender is a way to decide on Redis.
type contender struct {
	name string
	// calls returns what one decision sends: one script call, or one for each limit where the contender
	// cannot look at several at once.
	calls func(job job) []call
	// read tells what the reply to one of those calls says.
	read func(job job, reply any) (verdict, error)
}

// A job is what is asked: a cost on a key under limits.
type job struct {
	key    string
	cost   int64
	limits []sash.Limit
}

// A call is one EVALSHA.
type call struct {
	script *redisstore.Script
	keys   []string
	args   func() []any // of every repetition anew
}

// A verdict is what a reply says.
type verdict struct {
	allowed bool
	left    int64
}

// by is a contender of this repository. It asks redisstore what it would send, so that what is measured
// is what users run.
func by(name string, opts sash.Options) contender {
	request := func(j job) sash.Request {
		o := opts
		if o.Algorithm == sash.SlidingBuckets {
			o.Resolution = max(j.limits[0].Window/100, time.Microsecond).Truncate(time.Microsecond)
		}
		policy, err := sash.NewPolicy(&o, j.limits...)
		if err != nil {
			panic(fmt.Sprintf("redisbench: %s: %v", name, err)) // a limit of this program is wrong
		}
		return sash.Request{Key: j.key, Cost: j.cost, Policy: policy}
	}
	return contender{
		name: name,
		calls: func(j job) []call {
			var rec recorder
			_, err := redisstore.New(&rec, nil).Decide(context.Background(), request(j))
			if !errors.Is(err, errRecorded) {
				panic(fmt.Sprintf("redisbench: %s made no call: %v", name, err))
			}
			return []call{{script: rec.script, keys: rec.keys, args: func() []any { return []any{rec.arg} }}}
		},
		read: func(j job, reply any) (verdict, error) {
			text, ok := reply.(string)
			if !ok {
				return verdict{}, fmt.Errorf("%s answered %v", name, reply)
			}
			res, err := redisstore.New(answering(text), nil).Decide(context.Background(), request(j))
			return verdict{allowed: res.Allowed, left: res.Remaining}, err
		},
	}
}

var errRecorded = errors.New("recorded")

// A recorder is a redisstore.Scripter that keeps what it should run.
type recorder struct {
	script *redisstore.Script
	keys   []string
	arg    string
}

func (r *recorder) Run(_ context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	r.script, r.keys, r.arg = script, keys, arg
	return "", errRecorded
}

func (r *recorder) Cluster() bool { return false }

// answering is a redisstore.Scripter that answers itself.
type answering string

func (a answering) Run(context.Context, *redisstore.Script, []string, string) (string, error) {
	return string(a), nil
}

func (a answering) Cluster() bool { return false }

// sortedSet is the script that the field writes by hand: one call for each limit.
func sortedSet() contender {
	script := redisstore.NewScript("sortedset.lua", SortedSet)
	serial := 0
	return contender{
		name: "sorted set by hand",
		calls: func(j job) []call {
			var all []call
			for i, l := range j.limits {
				all = append(all, call{script, []string{fmt.Sprintf("hand:%s:%d", j.key, i)}, func() []any {
					serial++
					return []any{l.Window.Microseconds(), l.Units, j.cost, strconv.FormatInt(1e15+int64(serial), 16)}
				}})
			}
			return all
		},
		read: func(_ job, reply any) (verdict, error) {
			all, ok := reply.([]any)
			if !ok || len(all) != 3 {
				return verdict{}, fmt.Errorf("the sorted set answered %v", reply)
			}
			left, _ := all[1].(int64)
			return verdict{allowed: all[0] == int64(1), left: left}, nil
		},
	}
}

// empty is a script that does nothing: what Redis takes for any script.
func empty() contender {
	script := redisstore.NewScript("empty.lua", "return 1")
	return contender{
		name:  "empty script",
		calls: func(job) []call { return []call{{script, nil, func() []any { return nil }}} },
		read:  func(job, any) (verdict, error) { return verdict{allowed: true}, nil },
	}
}

func contenders() (emptyScript, byHand, compact contender, others []contender) {
	return empty(), sortedSet(), by("compact log (default)", sash.Options{}), []contender{
		by("sorted-set log", sash.Options{Algorithm: sash.SortedSetLog}),
		by("sliding buckets", sash.Options{Algorithm: sash.SlidingBuckets}),
		by("sliding counter", sash.Options{Algorithm: sash.SlidingCounter}),
		by("fixed window", sash.Options{Algorithm: sash.FixedWindow}),
		by("GCRA", sash.Options{Algorithm: sash.GCRA}),
	}
}
