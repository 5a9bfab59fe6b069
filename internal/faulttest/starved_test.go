package faulttest

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
)

// A process that has to share its processors with others is late itself. That is no failure of a Redis that is well: the
// failure mode answers only when the budget has lasted ten times as long.
func TestAProcessWithoutProcessorTime(t *testing.T) {
	for name, spin := range map[string]func(*testing.T) (stop func()){
		"4 goroutines": func(*testing.T) func() { return spinGoroutines(4) },
		"10 processes": func(t *testing.T) func() { return spinProcesses(t, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, a := range adapters { // one after the other
				t.Run(a.name, func(t *testing.T) { askStarved(t, a, spin) })
			}
		})
	}
}

func askStarved(t *testing.T, a adapter, spin func(*testing.T) (stop func())) {
	t.Helper()
	server := redistest.Start(t)
	var downs atomic.Int64
	store, err := failover.New(a.open(t, to(server.Addr(), time.Second)), &failover.Options{
		Modes: failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}},
		OnChange: func(now failover.State, _ error) {
			if now == failover.Down {
				downs.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, store, sash.Every(100_000, time.Hour))
	if _, err := l.Allow(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	defer spin(t)()
	slowness := measureSlowness(t, server)
	var mu sync.Mutex
	var byStore, byMode []span // guarded by mu
	var asked, late atomic.Int64
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() {
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end) || asked.Load() < 300; time.Sleep(3 * time.Millisecond) {
				asked.Add(1)
				began := time.Now()
				res, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				call, calls := span{began, time.Now()}, &byMode
				if res.Source == driver.FromStore {
					calls = &byStore
				}
				mu.Lock()
				*calls = append(*calls, call)
				mu.Unlock()
				if call.took() > promised {
					late.Add(1)
				}
			}
		})
	}
	callers.Wait()
	slow, failed, all := slowness(), len(byMode), len(byMode)+len(byStore)
	beyond := func(call span) bool { // the store's answer is not promised
		return call.took() >= 10*failover.DefaultBudget ||
			slices.ContainsFunc(slow, func(s span) bool { return call.shares(s) >= halfBudget })
	}
	right, wrong := len(slices.DeleteFunc(byStore, beyond)), len(slices.DeleteFunc(byMode, beyond))
	if wrong > (right+wrong)*15/100 {
		t.Errorf("%d of %d answers are by the failure mode within ten budgets, and the server is well", wrong, right+wrong)
	}
	t.Logf("%d of %d answers (%.1f %%) by the failure mode, %d of %d wrong, %d later than %v, %d times down, the server %d times slow; GOMAXPROCS %d",
		failed, all, float64(100*failed)/float64(all), wrong, right+wrong, late.Load(), promised, downs.Load(), len(slow), runtime.GOMAXPROCS(0))
}

// halfBudget is for how much of a call a server is slow when the failure mode may answer. It is not the whole budget,
// because a measurement can begin when the server has been slow for a while.
const halfBudget = failover.DefaultBudget / 2

// A span is from one moment to another.
type span struct{ from, to time.Time }

func (s span) took() time.Duration { return s.to.Sub(s.from) }

// shares returns how long two spans overlap.
func (s span) shares(o span) time.Duration {
	if o.from.After(s.from) {
		s.from = o.from
	}
	if o.to.Before(s.to) {
		s.to = o.to
	}
	return s.took()
}

// measureSlowness returns, at the end, when the server took halfBudget or longer to come to a command, by its own
// clock: it shares the processors, too. How late this process reads the reply does not count.
func measureSlowness(t *testing.T, s *redistest.Server) (end func() []span) {
	var slow []span
	over := make(chan struct{})
	var probe sync.WaitGroup
	probe.Go(func() {
		for {
			began := time.Now()
			reply, err := s.Do("TIME")
			at, ok := clockOf(reply)
			if err != nil || !ok {
				t.Errorf("the server's time is %v, %v", reply, err)
				return
			}
			if at.Sub(began.Round(0)) >= halfBudget {
				slow = append(slow, span{began, at})
			}
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() []span { close(over); probe.Wait(); return slow }
}

// clockOf reads the reply to TIME.
func clockOf(reply any) (at time.Time, ok bool) {
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return time.Time{}, false
	}
	seconds, err1 := strconv.ParseInt(fmt.Sprint(parts[0]), 10, 64)
	micros, err2 := strconv.ParseInt(fmt.Sprint(parts[1]), 10, 64)
	return time.UnixMicro(seconds*1e6 + micros), err1 == nil && err2 == nil
}

// More calls at once than a server that is well gets at once are decided one after the other, however long a busy machine
// takes for them.
func TestManyCallsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		const calls = 2000
		server := redistest.Start(t)
		store, err := failover.New(a.open(t, to(server.Addr(), 5*time.Minute)), &failover.Options{
			Budget: 5 * time.Minute,
			Modes:  failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, store, sash.Every(100_000, time.Hour))
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for range calls {
			callers.Go(func() {
				if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != driver.FromStore {
					t.Errorf("decided by the %v, %v, because of %v", res.Source, err, res.Cause)
				}
			})
		}
		callers.Wait()
		if n := used(t, l, "k"); n != 1+calls {
			t.Errorf("%d units are charged for %d calls", n, 1+calls)
		}
	})
}

func spinGoroutines(n int) (stop func()) {
	var over atomic.Bool
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for i := 0; !over.Load(); {
				i++
			}
		})
	}
	return func() { over.Store(true); group.Wait() }
}

func spinProcesses(t *testing.T, n int) (stop func()) {
	t.Helper()
	var all []*exec.Cmd
	for range n {
		spin := exec.Command("sh", "-c", "ulimit -t 10 && while :; do :; done") // it ends also if this process is killed
		if err := spin.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, spin)
	}
	return func() {
		for _, spin := range all {
			_ = spin.Process.Kill()
			_ = spin.Wait()
		}
	}
}
