package callers_test

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

// A stopped server delays no caller. When it continues, it runs what it received meanwhile, and that is not written
// again.
func TestFailoverWhileTheServerIsStopped(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("server", func(t *testing.T) {
		l := startLive(t)
		store, err := failover.New(l.store, &failover.Options{
			Modes:       failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}},
			MaxInFlight: 50,
			Local:       memstore.New(nil),
			Instances:   func() int { return 2 },
			Classify:    classify,
		})
		if err != nil {
			t.Fatal(err)
		}
		limiter := newLimiter(t, store, nil, sash.PerHour(1000))
		var mu sync.Mutex
		admitted := make(map[sash.Source]int)
		var slowest time.Duration
		ask := func(workers, calls int) {
			var group sync.WaitGroup
			for range workers {
				group.Go(func() {
					for range calls {
						start := time.Now()
						res, err := limiter.Allow(t.Context(), "k")
						took := time.Since(start)
						mu.Lock()
						slowest = max(slowest, took)
						if err != nil {
							t.Error(err)
						} else if res.Allowed {
							admitted[res.Source]++
						}
						mu.Unlock()
					}
				})
			}
			group.Wait()
		}
		ask(4, 50)
		process, err := os.FindProcess(l.Pid())
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ask(16, 50)
		if err := process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if store.State() == failover.Up || store.Stats().InFlight > 50 {
			t.Errorf("a server that is stopped is %v; %+v", store.State(), store.Stats())
		}
		for deadline := time.Now().Add(20 * time.Second); store.State() != failover.Up || store.Stats().Backlog > 0; {
			if time.Now().After(deadline) {
				t.Fatalf("the store is %v after 20 s; %+v", store.State(), store.Stats())
			}
			ask(1, 1)
			time.Sleep(10 * time.Millisecond)
		}
		// Its goroutine has ended, so what it took from the backlog is written.
		if err := store.Close(t.Context()); err != nil {
			t.Error(err)
		}
		res, err := l.limiter(t, sash.SlidingLog, sash.PerHour(1000)).Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		stats := store.Stats()
		all := int64(admitted[driver.FromStore] + admitted[driver.FromLocal])
		t.Logf("admitted %v; %d are charged; %+v; the slowest answer took %v", admitted, 1000-res.Remaining, stats, slowest)
		if got := admitted[driver.FromLocal]; got != 300 {
			t.Errorf("%d were admitted locally, want the 300 of the share that were not admitted before", got)
		}
		// Calls that the server worked on late may be charged although they were refused here.
		if used := 1000 - res.Remaining; used > all+50 || used < all-stats.Doubtful-stats.Lost {
			t.Errorf("%d units were admitted and %d are charged; %+v", all, used, stats)
		}
		if slowest > time.Second { // the budget is 50 ms; a machine that is busy takes its time
			t.Errorf("an answer took %v", slowest)
		}
	})
}
