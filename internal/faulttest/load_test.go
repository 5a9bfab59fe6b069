package faulttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
)

// A call is what one caller saw of one call.
type call struct {
	key        string
	cost       int64
	start, end time.Time
	sash.Result
	err error
}

// A load is callers that ask for units as fast as they are answered, until they are stopped.
type load struct {
	limiter  *sash.Limiter
	patience time.Duration // of the client
	quit     chan struct{}
	group    sync.WaitGroup
	admitted atomic.Int64 // calls
	refused  atomic.Int64
	failed   atomic.Int64

	mu    sync.Mutex
	calls []call          // guarded by mu
	late  []time.Duration // guarded by mu: how much later than they could goroutines went on
}

// callers is how many goroutines ask at once.
const callers = 6

// How long clients wait for a reply. Where a test is about a server that does not answer, they give up soon;
// where it says that no call fails, a machine that is busy must not be why one does. Callers wait for
// longer: a client that wanted to ask again, which it must not, would have the time.
const (
	hurried = 200 * time.Millisecond
	patient = 30 * time.Second
)

// start starts a load. The key of each call is what key returns: i counts the calls of one caller.
func start(t testing.TB, limiter *sash.Limiter, patience time.Duration, key func(caller, i int) string) *load {
	l := &load{limiter: limiter, patience: patience, quit: make(chan struct{})}
	t.Cleanup(func() { l.stop() })
	for c := range callers {
		l.group.Go(func() {
			var mine []call
			for i := 0; !l.quits(); i++ {
				mine = append(mine, l.ask(key(c, i), 1+int64(i%2)))
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls = append(l.calls, mine...)
		})
	}
	return l
}

// startOn starts a load on one subject.
func startOn(t testing.TB, limiter *sash.Limiter, patience time.Duration) *load {
	return start(t, limiter, patience, func(int, int) string { return subject })
}

// loaded starts a server and a load on one of its subjects, under the limits of most tests.
func loaded(t testing.TB, a adapter, patience time.Duration) (*redistest.Server, *sash.Limiter, *load) {
	t.Helper()
	server := redistest.Start(t)
	l := limiter(t, a.open(t, to(server.Addr(), patience)), limits...)
	return server, l, startOn(t, l, patience)
}

// subject is the key of every call where there is only one subject.
const subject = "subject"

func (l *load) quits() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}

func (l *load) ask(key string, cost int64) call {
	ctx, cancel := context.WithTimeout(context.Background(), 3*l.patience)
	defer cancel()
	c := call{key: key, cost: cost, start: time.Now()}
	c.Result, c.err = l.limiter.AllowN(ctx, key, cost)
	c.end = time.Now()
	switch {
	case c.err != nil:
		l.failed.Add(1)
	case c.Allowed:
		l.admitted.Add(1)
		return c
	default:
		l.refused.Add(1)
	}
	select { // leave the machine to others
	case <-l.quit:
	case <-time.After(time.Millisecond):
	}
	return c
}

// stop ends the load and returns all calls.
func (l *load) stop() history {
	l.mu.Lock()
	if !l.quits() {
		close(l.quit)
	}
	l.mu.Unlock()
	l.group.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// more waits until a counter of the load has grown by n.
func more(t testing.TB, what string, counter *atomic.Int64, n int64) {
	t.Helper()
	n += counter.Load()
	await(t, what, func() bool { return counter.Load() >= n })
}

// never is longer than anything takes that happens at all, also on a machine that does a lot of other work.
const never = 5 * time.Minute

// await waits until something happens, and fails the test when it does not.
func await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(never); !happened(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen within %v: %s", never, what)
		}
	}
}

// limiter makes a limiter over a store.
func limiter(t testing.TB, store driver.Store, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return limiterWith(t, store, sash.SlidingLog, limits...)
}

// limiterWith makes a limiter with an algorithm.
func limiterWith(t testing.TB, store driver.Store, algorithm sash.Algorithm, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	opts := &sash.Options{Algorithm: algorithm}
	if algorithm == sash.SlidingBuckets {
		opts.Resolution = time.Second
	}
	l, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// used returns the units that a subject is charged with under a limiter's last limit.
func used(t testing.TB, l *sash.Limiter, key string) int64 {
	t.Helper()
	for deadline := time.Now().Add(never); ; time.Sleep(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		res, err := l.Peek(ctx, key)
		cancel()
		if err == nil && res.Source == driver.FromStore { // a busy machine may be late, and then failover answers
			limits := res.Limits()
			last := limits[len(limits)-1]
			return last.Limit.Units - last.Remaining
		}
		if err != nil && !errors.Is(err, sash.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) || time.Now().After(deadline) {
			t.Fatal(res, err) // a connection that broke may fail a call or two
		}
	}
}
