package faulttest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

const (
	mostInFlight = 32
	processes    = 2 // that share the limits, as the store is configured

	// A caller's answer is due within the budget. A machine that does other work besides runs goroutines late, which
	// measureLateness measures beside the callers: what tests insist on is that no answer takes longer than ten budgets
	// and the greatest lateness, and that 9 of 10 come within the budget, 10 ms and what 9 of 10 are late by.
	longestAnswer = 10 * failover.DefaultBudget
	promised      = failover.DefaultBudget + 10*time.Millisecond
)

// The modes by cost, with a subject for each of them.
var modes = []struct {
	subject string
	cost    int64
}{{"open", 1}, {"local", 3}, {"closed", 25}}

var (
	shared = []sash.Limit{sash.Every(60, 50*time.Millisecond), sash.Every(20_000, time.Hour)}
	share  = []sash.Limit{sash.Every(30, 50*time.Millisecond), sash.Every(10_000, time.Hour)}
)

// guard puts failover before a store, as a user would.
func guard(t testing.TB, store driver.Store) *failover.Store {
	t.Helper()
	return must(failover.New(store, &failover.Options{
		Modes: failover.Modes{Rules: []failover.Rule{
			{MaxCost: 1, Mode: failover.Open}, {MaxCost: 20, Mode: failover.Local},
		}},
		MaxInFlight: mostInFlight,
		Local:       memstore.New(nil),
		Instances:   func() int { return processes },
		Classify:    failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
	}))(t)
}

// openWith puts failover in mode open before a store, with a budget.
func openWith(t testing.TB, store driver.Store, budget time.Duration) *failover.Store {
	t.Helper()
	open := failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}}
	return must(failover.New(store, &failover.Options{Modes: open, Budget: budget}))(t)
}

// Whatever the server does, callers have their answers in time and by the policy, nothing piles up, and when
// the fault is over the server is asked again.
func TestFailover(t *testing.T) {
	faults := []struct {
		name     string
		begin    func(*testing.T, *redistest.Server, *proxy)
		end      func(*testing.T, *redistest.Server, *proxy)
		losses   int64 // of state
		replicas bool  // one has to confirm, and has the fault in place of the server
	}{
		{"down",
			func(_ *testing.T, s *redistest.Server, _ *proxy) { s.Stop() },
			func(_ *testing.T, s *redistest.Server, _ *proxy) { s.Restart() }, 1, false},
		{"hung",
			func(_ *testing.T, s *redistest.Server, _ *proxy) { s.Pause() },
			func(_ *testing.T, s *redistest.Server, _ *proxy) { s.Resume() }, 0, false},
		{"black hole", spoilt(spoil{"timeout", true, nil}), healed, 0, false},
		{"slow drip", spoilt(spoil{"slicer", false, map[string]int{"average_size": 7, "size_variation": 3, "delay": 40_000}}), healed, 0, false},
		{"busy script",
			func(t *testing.T, s *redistest.Server, _ *proxy) {
				s.Must(t, "CONFIG", "SET", "lua-time-limit", "5")
				go func() { _, _ = redistest.Dial(s.Addr()).Do("EVAL", "while true do end", "0") }()
				await(t, "the script is noticed", func() bool { _, err := s.Do("PING"); return err != nil })
			},
			func(t *testing.T, s *redistest.Server, _ *proxy) { s.Must(t, "SCRIPT", "KILL") }, 0, false},
		{"too few replicas", // the calls are charged, and not written once more
			func(_ *testing.T, replica *redistest.Server, _ *proxy) { replica.Pause() },
			func(_ *testing.T, replica *redistest.Server, _ *proxy) { replica.Resume() }, 0, true},
	}
	for _, a := range adapters { // one after the other, for goroutines are counted
		for _, fault := range faults {
			t.Run(a.name+"/"+fault.name, func(t *testing.T) {
				server := redistest.Start(t, "--hz", "100") // so that waiting for replicas ends when it should
				defer goleak.VerifyNone(t, append(leftovers, goleak.IgnoreCurrent())...)
				t.Run("fault", func(t *testing.T) {
					p := through(t, server.Addr())
					at := to(p.Listen, time.Second)
					struck := server
					if fault.replicas {
						struck = redistest.StartReplica(t, server.Addr())
						at.options = &redisstore.Options{Replicas: 1, ReplicaTimeout: 25 * time.Millisecond}
					}
					store := guard(t, a.open(t, at))
					l := limiter(t, store, shared...)
					load := askInModes(t, l)
					time.Sleep(300 * time.Millisecond)
					goroutines, connections := runtime.NumGoroutine(), clients(t, server)

					fault.begin(t, struck, p)
					began := time.Now()
					await(t, "the breaker opens", func() bool { return store.State() != failover.Up })
					opened, most := time.Since(began), 0
					for time.Since(began) < 1500*time.Millisecond {
						most = max(most, runtime.NumGoroutine())
						if n := store.Stats().InFlight; n > mostInFlight {
							t.Errorf("%d calls are under way", n)
						}
						time.Sleep(5 * time.Millisecond)
					}
					fault.end(t, struck, p)
					ended := time.Now()
					await(t, "the breaker closes", func() bool { return store.State() == failover.Up })
					closed := time.Since(ended)
					time.Sleep(300 * time.Millisecond)
					all := load.stop()

					// A call under way is a goroutine here and at most a few of the client's and the proxy's.
					if most > goroutines+6*mostInFlight {
						t.Errorf("%d goroutines in the fault, %d before", most, goroutines)
					}
					await(t, "what was admitted locally is written, without a call", func() bool {
						return store.Stats().Backlog == 0 && store.Stats().InFlight == 0
					})
					if err := store.Close(t.Context()); err != nil { // its goroutine has ended
						t.Error(err)
					}
					after := clients(t, server)
					if after > connections+mostInFlight {
						t.Errorf("%d connections, %d before", after, connections)
					}
					all.followPolicy(t)
					all.stayBounded(t, 1+fault.losses)
					if fault.losses == 0 {
						all.areCharged(t, l, store.Stats())
					}
					times := all.where(func(c call) bool { return c.start.After(began) && c.start.Before(ended) }).times(t, load.late)
					t.Logf("%d answers in the fault: p50 %v, p99 %v, longest %v; down after %v, up again after %v; %d goroutines, at most %d; %d connections, then %d; %+v",
						len(times), part(times, 50), part(times, 99), part(times, 100), opened.Round(time.Millisecond),
						closed.Round(time.Millisecond), goroutines, most, connections, after, store.Stats())
					t.Logf("goroutines ran late by: p90 %v, at most %v", part(load.late, 90), part(load.late, 100))
				})
			})
		}
	}
}

// leftovers are goroutines of the tests: what waits for a process that was started again, and what a toxiproxy
// leaves behind when a connection ends while it is spoiled.
var leftovers = []goleak.Option{
	goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"),
}

func spoilt(s spoil) func(*testing.T, *redistest.Server, *proxy) {
	return func(t *testing.T, _ *redistest.Server, p *proxy) { p.add(t, s, 1) }
}

func healed(t *testing.T, _ *redistest.Server, p *proxy) { p.heal(t) }

func clients(t testing.TB, server *redistest.Server) int {
	t.Helper()
	return must(strconv.Atoi(server.Info(t, "clients", "connected_clients")))(t)
}

// askInModes starts callers that ask in each mode in turn.
func askInModes(t testing.TB, limiter *sash.Limiter) *load {
	l := &load{limiter: limiter, quit: make(chan struct{})}
	t.Cleanup(func() { l.stop() })
	for first := range callers {
		l.group.Go(l.measureLateness)
		l.group.Go(func() {
			var mine []call
			for i := first; !l.quits(); i++ {
				m := modes[i%len(modes)]
				c := call{key: m.subject, cost: m.cost, start: time.Now()}
				c.Result, c.err = l.limiter.AllowN(context.Background(), c.key, c.cost)
				c.end = time.Now()
				mine = append(mine, c)
				time.Sleep(3 * time.Millisecond)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls = append(l.calls, mine...)
		})
	}
	return l
}

// measureLateness notes how much later than the budget a caller goes on that waits for nothing but a goroutine that
// sleeps for the budget, in five steps as failover does.
func (l *load) measureLateness() {
	for !l.quits() {
		began, done := time.Now(), make(chan struct{})
		go func() {
			for range 5 {
				time.Sleep(failover.DefaultBudget / 5)
			}
			close(done)
		}()
		<-done
		l.mu.Lock()
		l.late = append(l.late, time.Since(began)-failover.DefaultBudget)
		l.mu.Unlock()
	}
}

// followPolicy reports answers that the policy does not give.
func (h history) followPolicy(t testing.TB) {
	t.Helper()
	seen := map[sash.Source]int{}
	for _, c := range h {
		var want bool
		switch {
		case c.err != nil:
			want = c.key == "closed" && errors.Is(c.err, sash.ErrUnavailable)
		case c.Source == driver.FromStore:
			want = c.Cause == nil
		case c.key == "open":
			want = c.Allowed && c.Source == driver.FromPolicy && errors.Is(c.Cause, sash.ErrUnavailable)
		case c.key == "local":
			want = c.Source == driver.FromLocal && errors.Is(c.Cause, sash.ErrUnavailable)
		}
		if !want {
			t.Fatalf("cost %d: %+v, %v", c.cost, c.Result, c.err)
		}
		seen[c.Source]++
	}
	if failed := len(h.failed()); failed == 0 || seen[driver.FromPolicy] == 0 || seen[driver.FromLocal] == 0 {
		t.Errorf("the fault was hardly felt: %d errors, %v", failed, seen)
	}
}

// stayBounded reports admissions beyond the bounds: N from the store, once more for each loss of state, and
// this process's share besides, whatever the store did.
func (h history) stayBounded(t testing.TB, times int64) {
	t.Helper()
	for _, m := range modes {
		mine := h.where(func(c call) bool { return c.key == m.subject })
		mine.where(func(c call) bool { return c.err == nil && c.Source == driver.FromStore }).keepsTo(t, times, shared...)
		mine.where(func(c call) bool { return c.err == nil && c.Source == driver.FromLocal }).keepsTo(t, 1, share...)
	}
}

// areCharged reports what was admitted locally and not written when the store came back, and what was
// written twice: what was doubtful may be charged or not.
func (h history) areCharged(t testing.TB, l *sash.Limiter, stats failover.Stats) {
	t.Helper()
	mine := h.where(func(c call) bool { return c.key == "local" })
	charged, admitted := used(t, l, "local"), mine.admitted().units()
	if charged < admitted-stats.Doubtful-stats.Lost || charged > admitted+int64(mostInFlight)*10*modes[1].cost {
		t.Errorf("%d units were admitted and %d are charged: %+v", admitted, charged, stats)
	}
}

// times returns how long the answers took, the shortest first, and reports what took too long where goroutines run
// late. It sorts late, too.
func (h history) times(t testing.TB, late []time.Duration) (all []time.Duration) {
	t.Helper()
	slices.Sort(late)
	for _, c := range h {
		all = append(all, c.end.Sub(c.start))
	}
	slices.Sort(all)
	if len(all) < 100 {
		t.Fatalf("there were %d answers only", len(all))
	}
	if most, late := part(all, 100), part(late, 100); most > longestAnswer+late {
		t.Errorf("an answer took %v, where goroutines run up to %v late", most, late)
	}
	if most, late := part(all, 90), part(late, 90); most > promised+late {
		t.Errorf("one answer of ten took %v or longer, where one goroutine of ten runs %v late", most, late)
	}
	return all
}

// part returns the time that a part of the answers did not exceed.
func part(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(10 * time.Microsecond)
}

// Calls that wait for one of two connections wait in this process: while the server answers in time, it decides nearly all that
// it can, the others are refused as overload, and no failure mode answers, but for a few calls where this process is late. It
// begins when the number of calls at the server has come down to what it answers.
func TestASmallPoolIsNoFailureOfTheServer(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		p := through(t, redistest.Start(t).Addr())
		at := to(p.Listen, time.Second)
		at.pool = 2
		store := openWith(t, a.open(t, at), 4*failover.DefaultBudget)
		l := limiter(t, store, sash.PerHour(90_000))
		spoilt(spoil{"latency", false, map[string]int{"latency": 40}})(t, nil, p)
		var decided, overload, others atomic.Int64
		var group sync.WaitGroup
		began, settled := time.Now(), 2*time.Second
		for range 2 * mostInFlight {
			group.Go(func() {
				for time.Since(began) < 2*settled {
					late := time.Since(began) > settled
					res, err := l.Allow(t.Context(), "k")
					switch {
					case !late:
					case err == nil && res.Source == driver.FromStore:
						decided.Add(1)
					case errors.Is(err, failover.ErrOverload):
						overload.Add(1)
					default:
						others.Add(1)
					}
					if res.Source != driver.FromStore {
						time.Sleep(5 * time.Millisecond)
					}
				}
			})
		}
		group.Wait()
		t.Logf("%d decided, %d overload, %d others; the store is %v", decided.Load(), overload.Load(), others.Load(), store.State())
		if decided.Load() < 40 || others.Load() > decided.Load()/20 || store.State() != failover.Up {
			t.Error("a pool that is too small is taken for a failure of the server")
		}
	})
}
