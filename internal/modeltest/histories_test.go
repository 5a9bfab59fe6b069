package modeltest

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
)

// childEnv holds a job: with it, the test binary is one more process that shares the limits, and prints its calls.
const childEnv = "SASH_MODELTEST_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		var j job
		check(json.Unmarshal([]byte(text), &j))
		check(json.NewEncoder(os.Stdout).Encode(j.run()))
		return
	}
	os.Exit(m.Run())
}

// A job is what one process does: callers that ask as fast as they can.
type job struct {
	Addr      string
	Algorithm sash.Algorithm
	Limits    []sash.Limit
	Callers   int
	Calls     int // of each caller
	MostCost  int64
	Client    int // of the first caller
}

// A call is what one caller saw.
type call struct {
	Client       int
	Call, Return int64 // nanoseconds since 1970, by the clock that the processes share
	Cost         int64
	Allowed      bool
	Remaining    int64
	At           int64 // microseconds
}

// run makes the calls of a job.
func (j job) run() []call {
	const patience = time.Minute // a busy machine is no fault of a limiter
	client := redis.NewClient(&redis.Options{
		Addr: j.Addr, MaxRetries: -1, PoolSize: 64, DisableIdentity: true, DialTimeout: patience, ReadTimeout: patience, PoolTimeout: patience,
	})
	defer client.Close()
	limiter := must(sash.New(goredisstore.New(client, nil), options(j.Algorithm), j.Limits...))
	var group sync.WaitGroup
	parts := make([][]call, j.Callers)
	for c := range parts {
		group.Go(func() {
			for i := range j.Calls {
				cost, start := 1+int64(c+i)%j.MostCost, time.Now().UnixNano()
				res := must(limiter.AllowN(context.Background(), "history", cost))
				parts[c] = append(parts[c], call{
					Client: j.Client + c, Call: start, Return: time.Now().UnixNano(), Cost: cost, Allowed: res.Allowed,
					Remaining: res.Remaining, At: res.At.UnixMicro(),
				})
			}
		})
	}
	group.Wait()
	return slices.Concat(parts...)
}

// inProcesses runs a job in several processes at once and returns the calls of all.
func (j job) inProcesses(t *testing.T, processes int) []call {
	t.Helper()
	var group sync.WaitGroup
	parts := make([][]call, processes)
	for i := range parts {
		j.Client = i * j.Callers
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+string(must(json.Marshal(j))))
		cmd.Stderr = os.Stderr
		group.Go(func() {
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &parts[i])
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return slices.Concat(parts...)
}

// The calls of two processes keep to the limits, and none is refused without need. Where no entry is shared they are those of
// a single limiter, in some order that their callers' clock allows.
func TestHistoriesOfTwoProcesses(t *testing.T) {
	server := redistest.Start(t)
	limits := []sash.Limit{sash.Every(20, 15*time.Millisecond), sash.Every(45, 50*time.Millisecond)}
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			j := job{Addr: server.Addr(), Algorithm: a, Limits: limits, Callers: 6, Calls: 400, MostCost: 3}
			calls := j.inProcesses(t, 2)
			var admissions, refusals []judge.Call
			var history []porcupine.Operation
			for _, s := range places(calls) {
				decided := judge.Call{At: time.UnixMicro(s.At), Cost: s.Cost}
				if s.Allowed {
					admissions = append(admissions, decided)
				} else {
					refusals = append(refusals, decided)
				}
				history = append(history, porcupine.Operation{ClientId: s.Client, Call: s.Call, Return: s.Return, Input: s.Cost, Output: s})
			}
			if len(admissions) < 30 || len(refusals) < 30 {
				t.Fatalf("only %d admissions and %d refusals", len(admissions), len(refusals))
			}
			if err := judge.CheckHistory(limits, admissions); err != nil {
				t.Error(err)
			}
			held := slices.Clone(limits)
			for i := range held { // a bucket may hold a unit longer, by no more than its resolution
				held[i].Window += options(a).Resolution
			}
			if err := judge.CheckRefusals(held, admissions, refusals); err != nil {
				t.Error(err)
			}
			if a == sash.SlidingBuckets {
				return
			}
			if got := porcupine.CheckOperationsTimeout(model(limits), history, 30*time.Second); got != porcupine.Ok {
				t.Errorf("the history of %d calls is %v", len(history), got)
			}
		})
	}
}

// A step is a call as porcupine sees it. Its place among all calls is known up to those of the same
// microsecond: the server ran the scripts one after the other, and its clock did not go back.
type step struct {
	call
	first, last int
}

// A charged log is the model's state: how many calls were made, and what counts.
type chargedLog struct {
	calls   int
	charges []judge.Call
}

// model is the definition in terms of one key: admitted exactly when every limit has room.
func model(limits []sash.Limit) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return chargedLog{} },
		Step: func(state, _, output any) (bool, any) {
			log, s := state.(chargedLog), output.(step)
			if log.calls < s.first || log.calls > s.last {
				return false, state
			}
			room, left := true, int64(sash.MaxUnits)
			for _, l := range limits {
				var used int64
				for _, c := range log.charges {
					if s.At-c.At.UnixMicro() < l.Window.Microseconds() {
						used += c.Cost
					}
				}
				room = room && used+s.Cost <= l.Units
				left = min(left, l.Units-used)
			}
			next := chargedLog{calls: log.calls + 1, charges: log.charges}
			if room {
				left -= s.Cost // costs are the same for every limit
				next.charges = append(slices.Clone(log.charges), judge.Call{At: time.UnixMicro(s.At), Cost: s.Cost})
			}
			return room == s.Allowed && left == s.Remaining, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(chargedLog), b.(chargedLog)
			return x.calls == y.calls && slices.Equal(x.charges, y.charges)
		},
	}
}

// places finds the places that calls can have in the server's order.
func places(calls []call) []step {
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.At, b.At) })
	steps := make([]step, len(calls))
	for i := 0; i < len(calls); {
		end := i
		for end < len(calls) && calls[end].At == calls[i].At {
			end++
		}
		for j := i; j < end; j++ {
			steps[j] = step{calls[j], i, end - 1}
		}
		i = end
	}
	return steps
}

func TestTheModelFindsWhatIsWrong(t *testing.T) {
	one := func(began, at int64, allowed bool) call {
		return call{Call: began, Return: began + 1, Cost: 1, Allowed: allowed, At: at}
	}
	for name, c := range map[string]struct {
		calls []call
		ok    bool
	}{
		"one and a refusal":             {[]call{one(0, 10, true), one(2, 11, false)}, true},
		"two of one":                    {[]call{one(0, 10, true), one(2, 11, true)}, false},
		"a false refusal":               {[]call{one(0, 10, true), one(2, 1_000_010, false)}, false},
		"decided after it was answered": {[]call{one(0, 11, false), one(2, 10, true)}, false},
	} {
		var history []porcupine.Operation
		for _, s := range places(c.calls) {
			history = append(history, porcupine.Operation{Call: s.Call, Return: s.Return, Output: s})
		}
		if ok := porcupine.CheckOperations(model([]sash.Limit{sash.Every(1, time.Second)}), history); ok != c.ok {
			t.Errorf("%s: linearizable: %v", name, ok)
		}
	}
}
