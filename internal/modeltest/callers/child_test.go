package callers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

// resolutionOf returns the step of an algorithm: one that does not divide an hour.
func resolutionOf(a sash.Algorithm) time.Duration {
	if a == sash.SlidingBuckets {
		return 7 * time.Millisecond
	}
	return 0
}

// childEnv holds a job: with it, the test binary is one more process that shares the limits.
const childEnv = "SASH_MODELTEST_CHILD"

// A job is what one process does: callers that ask as fast as they can.
type job struct {
	Addr      string
	Key       string
	Algorithm sash.Algorithm
	Limits    []sash.Limit
	Callers   int
	Calls     int // of each caller
	MostCost  int64
	Client    int // of the first caller
}

// A call is what one caller saw.
type call struct {
	Client         int
	Call, Return   int64 // nanoseconds since 1970, by the clock that the processes share
	Cost           int64
	Allowed        bool
	Remaining      int64
	At, RetryAfter int64 // microseconds
}

// run makes the calls of a job.
func (j job) run() ([]call, error) {
	const patience = time.Minute // a busy machine is no fault of a limiter
	client := redis.NewClient(&redis.Options{
		Addr: j.Addr, MaxRetries: -1, PoolSize: 64, DisableIdentity: true, DialTimeout: patience, ReadTimeout: patience, PoolTimeout: patience,
	})
	defer client.Close()
	limiter, err := sash.New(goredisstore.New(client, nil), &sash.Options{Algorithm: j.Algorithm, Resolution: resolutionOf(j.Algorithm)}, j.Limits...)
	if err != nil {
		return nil, err
	}
	var (
		mu     sync.Mutex
		all    []call
		failed error
		group  sync.WaitGroup
	)
	for c := range j.Callers {
		group.Go(func() {
			var mine []call
			var err error
			for i := 0; err == nil && i < j.Calls; i++ {
				cost := 1 + int64(c+i)%j.MostCost
				start := time.Now().UnixNano()
				var res sash.Result
				res, err = limiter.AllowN(context.Background(), j.Key, cost)
				mine = append(mine, call{
					Client: j.Client + c, Call: start, Return: time.Now().UnixNano(), Cost: cost, Allowed: res.Allowed,
					Remaining: res.Remaining, At: res.At.UnixMicro(), RetryAfter: res.RetryAfter.Microseconds(),
				})
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
			if err != nil {
				failed = err
			}
		})
	}
	group.Wait()
	return all, failed
}

// child is main in a process that runs a job: it prints the calls.
func child() {
	var j job
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &j)
	var calls []call
	if err == nil {
		calls, err = j.run()
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(calls)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// inProcesses runs a job in several processes at once and returns the calls of all.
func (j job) inProcesses(t *testing.T, processes int) []call {
	t.Helper()
	var (
		group sync.WaitGroup
		parts = make([][]call, processes)
		errs  = make([]error, processes)
	)
	for i := range processes {
		mine := j
		mine.Client = i * j.Callers
		text, err := json.Marshal(mine)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+string(text))
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &parts[i])
			}
			if exit, ok := err.(*exec.ExitError); ok {
				err = fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			errs[i] = err
		})
	}
	group.Wait()
	var all []call
	for i := range processes {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		all = append(all, parts[i]...)
	}
	return all
}
