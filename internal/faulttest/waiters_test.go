package faulttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
)

// waitersEnv holds a job: with it, the test binary is one more process whose callers wait for a subject.
const waitersEnv = "SASH_FAULTTEST_WAITERS"

// A waitersJob is what one process of waiters does. It ends when its input does.
type waitersJob struct {
	Addrs    []string
	Sentinel string // what sentinels call the primary, if Addrs are theirs
	Process  int
	Waiters  int
	Limits   []sash.Limit
	HighCost int64 // of one waiter in a hundred; the others cost 1
}

// A booking is what one waiter saw. All times but At and Delay are of the clock that the processes share, in microseconds since 1970.
type booking struct {
	Process, Waiter, Round   int
	Cost                     int64
	Asked, Answered, Started int64 // Started is 0 for those who never did
	At, Delay                int64 // by the server; 0 for those who left while it decided
	Waits                    int64 // when it began to wait for its place: from then on its process moves it up before newcomers
	Came, Place              int64 // by the server: when it decided, and At as it gave it: a process has another caller start there, and this one at another's
	Left                     bool  // it gave its place back
	Doubtful                 bool  // giving it back took a second, so the store may not have done so
	Failed                   string
}

func micros(t time.Time) int64 { return t.UnixMicro() }

// waitersMain is main in a process of waiters. It writes each booking when it is answered, and again when it starts or
// ends. At the line "leave" every third waiter leaves; the others end when the input does.
func waitersMain(text string) error {
	var j waitersJob
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	opts := redis.UniversalOptions{Addrs: j.Addrs, MasterName: j.Sentinel, PoolTimeout: time.Minute}
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = patient, patient, patient // so that no caller fails because a machine is busy
	client := redis.NewClient(goredisstore.Tune(opts.Simple()))
	if j.Sentinel != "" {
		client = redis.NewFailoverClient(goredisstore.Tune(opts.Failover()))
	}
	defer client.Close()
	limiter, err := sash.New(goredisstore.New(client, nil), &sash.Options{Observer: placer{}}, j.Limits...)
	if err != nil {
		return err
	}
	var (
		mu    sync.Mutex
		out   = json.NewEncoder(os.Stdout)
		group sync.WaitGroup
		ended atomic.Bool
	)
	write := func(b booking) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(b)
	}
	leaving, leave := context.WithCancel(context.Background())
	defer leave()
	var left time.Time // when leaving ended
	for w := range j.Waiters {
		ctx, b := context.Background(), booking{Process: j.Process, Waiter: w, Cost: 1}
		if w%3 == 0 {
			ctx = leaving
		}
		if w%100 == 50 && j.HighCost > 0 {
			b.Cost = j.HighCost
		}
		group.Go(func() {
			for ; !ended.Load() && ctx.Err() == nil; b.Round++ {
				b.wait(ctx, limiter, &left, write)
			}
		})
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		left = time.Now()
		leave()
	}
	ended.Store(true)
	group.Wait()
	return nil
}

// wait is one booking of a waiter. left is when ctx ended, once it has.
func (b booking) wait(ctx context.Context, limiter *sash.Limiter, left *time.Time, write func(booking)) {
	var decided atomic.Pointer[sash.Result]
	b.Asked = micros(time.Now())
	r, err := limiter.Reserve(context.WithValue(ctx, placer{}, &decided), subject, b.Cost, &sash.ReserveOptions{WaitUpTo: time.Hour})
	if b.Answered = micros(time.Now()); decided.Load() != nil {
		b.Place, b.Came = micros(decided.Load().At), micros(decided.Load().At.Add(-decided.Load().Delay))
	}
	if b.Left = errors.Is(err, context.Canceled); b.Left { // while the store decided
		write(b)
		return
	}
	if err != nil {
		b.Failed = err.Error()
		write(b)
		time.Sleep(20 * time.Millisecond) // not a herd while there is no server
		return
	}
	b.At, b.Delay = micros(r.Result().At), r.Result().Delay.Microseconds()
	write(b)
	b.Waits = micros(time.Now())
	err = r.Wait(ctx)
	b.Started, b.Left = micros(time.Now()), errors.Is(err, context.Canceled)
	if b.Left {
		b.Started, b.Doubtful = 0, time.Since(*left) >= time.Second
	} else if err != nil {
		b.Failed = err.Error()
	} else {
		b.At = micros(r.Result().At) // it may have moved up
	}
	write(b)
}

// A placer gives a caller each decision of the server.
type placer struct{}

func (placer) Observe(ctx context.Context, d sash.Decision) {
	ctx.Value(placer{}).(*atomic.Pointer[sash.Result]).Store(&d.Result)
}

// A fleet is processes of waiters.
type fleet struct {
	processes []*waitersProcess
	group     sync.WaitGroup
	answers   atomic.Int64

	mu  sync.Mutex
	all map[[3]int]booking // guarded by mu; by process, waiter and round
}

type waitersProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// startFleet starts processes of waiters. They end with the test.
func startFleet(t *testing.T, processes int, j waitersJob) *fleet {
	t.Helper()
	f := &fleet{all: map[[3]int]booking{}}
	for p := range processes {
		j.Process = p
		text := must(json.Marshal(j))(t)
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), waitersEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		stdin := must(cmd.StdinPipe())(t)
		stdout := must(cmd.StdoutPipe())(t)
		check(t, cmd.Start())
		f.processes = append(f.processes, &waitersProcess{cmd, stdin})
		f.group.Go(func() {
			f.read(stdout)
			_ = cmd.Wait()
		})
	}
	return f
}

func (f *fleet) read(from io.Reader) {
	for lines := json.NewDecoder(from); ; {
		var b booking
		if lines.Decode(&b) != nil { // the end, or a line that a kill cut off
			return
		}
		f.mu.Lock()
		f.all[[3]int{b.Process, b.Waiter, b.Round}] = b
		f.mu.Unlock()
		if b.Started == 0 && !b.Left && b.Failed == "" {
			f.answers.Add(1)
		}
	}
}

// waiting returns how many callers have a place, and have not started or left, as far as is known here, in the processes from one on.
func (f *fleet) waiting(from int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.all {
		if b.Process >= from && b.At > 0 && b.Started == 0 && !b.Left && b.Failed == "" {
			n++
		}
	}
	return n
}

// kill kills a process. It returns when all it wrote was read.
func (f *fleet) kill(t *testing.T, p int) {
	t.Helper()
	check(t, f.processes[p].cmd.Process.Kill())
}

// leave has every third waiter leave.
func (f *fleet) leave(t *testing.T) {
	t.Helper()
	for _, p := range f.processes {
		must(fmt.Fprintln(p.stdin, "leave"))(t)
	}
}

// end returns all bookings, once the last waiter has started.
func (f *fleet) end() (all bookings) {
	for _, p := range f.processes {
		_ = p.stdin.Close()
	}
	f.group.Wait()
	for _, b := range f.all {
		all = append(all, b)
	}
	return all
}
