// Package redisbench measures decisions on a real redis-server: the server's own time for each, from its
// command statistics, and the memory of its keys.
package redisbench

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

// SortedSet is the script of a sliding log as services usually write it.
//
//go:embed sortedset.lua
var SortedSet string

// A contender is a way to decide on Redis.
type contender struct {
	name string
	// calls returns what one decision sends: one script call, or one per limit if the contender cannot decide
	// over several at once.
	calls func(job) []call
	// read returns what the reply to one of those calls means.
	read func(job job, reply any) (allowed bool, left int64, err error)
}

// A job is one decision: a cost on a key under limits.
type job struct {
	key    string
	cost   int64
	limits []sash.Limit
}

// A call is one EVALSHA.
type call struct {
	script *redisstore.Script
	keys   []string
	args   func() []any // anew for every repetition
}

// sashBy is Sash with the options. It takes the calls from redisstore, so that it measures what users run.
func sashBy(name string, opts sash.Options) contender {
	decide := func(j job, server redisstore.Scripter) (driver.Answer, error) {
		o := opts
		if o.Algorithm == sash.SlidingBuckets {
			o.Resolution = max(j.limits[0].Window/100, time.Microsecond).Truncate(time.Microsecond)
		}
		policy, err := sash.NewPolicy(&o, j.limits...)
		if err != nil {
			panic(fmt.Sprintf("redisbench: %s: %v", name, err)) // a limit of this program is invalid
		}
		return redisstore.New(server, nil).Decide(context.Background(), driver.Request{Key: j.key, Cost: j.cost, Policy: policy})
	}
	return contender{
		name: name,
		calls: func(j job) []call {
			var rec recorder
			if _, err := decide(j, &rec); !errors.Is(err, errRecorded) {
				panic(fmt.Sprintf("redisbench: %s made no call: %v", name, err))
			}
			return []call{rec.call}
		},
		read: func(j job, reply any) (bool, int64, error) {
			text, ok := reply.(string)
			if !ok {
				return false, 0, fmt.Errorf("redisbench: %s answered %v", name, reply)
			}
			res, err := decide(j, &recorder{reply: text})
			return res.Allowed(), res.Remaining(), err
		},
	}
}

var errRecorded = errors.New("recorded")

// A recorder is a redisstore.Scripter that records the call, and returns its reply if it has one.
type recorder struct {
	call  call
	reply string
}

func (r *recorder) Run(_ context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	r.call = call{script, keys, func() []any { return []any{arg} }}
	if r.reply == "" {
		return "", errRecorded
	}
	return r.reply, nil
}

func (r *recorder) Cluster() bool { return false }

// sortedSet is the script that services write by hand.
func sortedSet() contender { return byHand("sorted set by hand", SortedSet) }

// byHand is a script that takes the window, the units, the cost and a text unique to the call, and answers whether it
// admits and what is left: one call per limit.
func byHand(name, text string) contender {
	script := redisstore.NewScript(name, text)
	serial := 0
	return contender{
		name: name,
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
		read: func(_ job, reply any) (bool, int64, error) {
			all, ok := reply.([]any)
			if !ok || len(all) < 3 {
				return false, 0, fmt.Errorf("redisbench: %s answered %v", name, reply)
			}
			left, _ := all[1].(int64)
			return all[0] == int64(1), left, nil
		},
	}
}

// empty is a script that does nothing: Redis's time for any script.
func empty() contender {
	script := redisstore.NewScript("empty.lua", "return 1")
	return contender{
		name:  "empty script",
		calls: func(job) []call { return []call{{script, nil, func() []any { return nil }}} },
		read:  func(job, any) (bool, int64, error) { return true, 0, nil },
	}
}

// A lineup is the contenders.
type lineup struct {
	empty, hand, compact contender
	others               []contender
}

func contenders() lineup {
	return lineup{empty(), sortedSet(), sashBy("compact log (default)", sash.Options{}), []contender{
		sashBy("sorted-set log", sash.Options{Algorithm: sash.SortedSetLog}),
		sashBy("sliding buckets", sash.Options{Algorithm: sash.SlidingBuckets}),
		sashBy("sliding counter", sash.Options{Algorithm: sash.SlidingCounter}),
		sashBy("fixed window", sash.Options{Algorithm: sash.FixedWindow}),
		sashBy("GCRA", sash.Options{Algorithm: sash.GCRA}),
	}}
}
