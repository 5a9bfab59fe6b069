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
	"example.com/sash/redistest"
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
	var policy []span // guarded by mu
	var all, late atomic.Int64
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() {
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
				began := time.Now()
				res, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				all.Add(1)
				if ended := time.Now(); res.Source != driver.FromStore {
					mu.Lock()
					policy = append(policy, span{began, ended})
					mu.Unlock()
				}
				if time.Since(began) > promised {
					late.Add(1)
				}
			}
		})
	}
	callers.Wait()
	failed, slow := len(policy), slowness()
	policy = slices.DeleteFunc(policy, func(p span) bool {
		return p.to.Sub(p.from) >= 10*failover.DefaultBudget || slices.ContainsFunc(slow, p.meets)
	})
	wrong := int64(len(policy))
	if wrong > all.Load()*15/100 {
		t.Errorf("%d of %d answers are by the failure mode within ten budgets, and the server is well", wrong, all.Load())
	}
	t.Logf("%d of %d answers (%.1f %%) by the failure mode, %d of them wrong, %d later than %v, %d times down, the server %d times slow; GOMAXPROCS %d",
		failed, all.Load(), float64(100*failed)/float64(all.Load()), wrong, late.Load(), promised, downs.Load(), len(slow), runtime.GOMAXPROCS(0))
}

// A span is from one moment to another.
type span struct{ from, to time.Time }

func (s span) meets(o span) bool { return s.from.Before(o.to) && o.from.Before(s.to) }

// measureSlowness returns, at the end, when the server took half of a budget or longer to come to a command, by its own
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
			if at.Sub(began.Round(0)) >= failover.DefaultBudget/2 {
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

// More calls at once than a server that is well gets at once are decided one after the other.
func TestManyCallsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		store, err := failover.New(a.open(t, to(redistest.Start(t).Addr(), 10*time.Second)), &failover.Options{
			Budget: 10 * time.Second,
			Modes:  failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, store, sash.Every(100_000, time.Hour))
		if _, err := l.Allow(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		var policy atomic.Int64
		var callers sync.WaitGroup
		began := time.Now()
		for range 2000 {
			callers.Go(func() {
				if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != driver.FromStore {
					policy.Add(1)
				}
			})
		}
		callers.Wait()
		t.Logf("2000 answers after %v", time.Since(began).Round(time.Millisecond))
		if policy.Load() > 0 {
			t.Errorf("%d of 2000 answers are by the failure mode", policy.Load())
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
