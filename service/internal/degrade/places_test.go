package degrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

// An island is a home that takes a while to answer, and perhaps takes nothing back.
type island struct {
	*memstore.Store
	takes time.Duration
	keeps error
}

func (i island) Powers() driver.Powers { return i.Store.Powers() | driver.CanEach }

func (i island) Do(ctx context.Context, b *driver.Batch) error {
	switch op := &b.Ops[0]; {
	case op.Kind == driver.Charge:
		if err := i.cross(ctx); err != nil {
			return err
		}
	case op.Kind == driver.Settle && i.keeps != nil:
		return i.keeps
	}
	return i.Store.Do(ctx, b)
}

func (i island) cross(ctx context.Context) error {
	select {
	case <-time.After(i.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var quota = config.Place{Global: true, Lease: 20 * time.Second}

func watching(t *testing.T, budget time.Duration, store driver.Store, log *slog.Logger) *Home {
	t.Helper()
	return servertest.Must(NewHome("far", budget, store, log))(t)
}

func regionOf(t *testing.T, home *Home, log *slog.Logger) *Guard {
	t.Helper()
	return servertest.Must(New(redisstore.New(&scripts{}, nil), Options{Home: home, Log: log}))(t)
}

// overseas returns a guard of a region whose leases are in memory, and a limiter of a rule for all regions.
func overseas(t *testing.T, home island, budget time.Duration) (*Guard, *sash.Limiter, *bytes.Buffer) {
	t.Helper()
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	g := regionOf(t, watching(t, budget, home, log), log)
	g.places.holder.(*region).next = memstore.New(nil)
	l := limiterOf(t, servertest.Must(g.Place(quota))(t), sash.PerMinute(60_000))
	return g, l, &logged
}

// A home that does not answer is asked by few calls, also of rules without leases.
func TestASilentHomeAndARuleWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := &asked{island: island{Store: memstore.New(nil), takes: time.Hour}}
		log := slog.New(slog.DiscardHandler)
		g := regionOf(t, watching(t, time.Second, home, log), log)
		l := limiterOf(t, servertest.Must(g.Place(config.Place{Global: true}))(t), sash.PerMinute(5))
		for i := range 1000 {
			go func() { _, _ = l.Allow(t.Context(), fmt.Sprint(i)) }()
			time.Sleep(10 * time.Millisecond)
		}
		if n := home.times.Load(); n > 300 {
			t.Errorf("%d of 1000 calls in 10 s ask a home that is silent", n)
		}
		time.Sleep(10 * time.Second)
		g.Close()
	})
}

type asked struct {
	island
	times atomic.Int64
}

func (a *asked) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind == driver.Charge {
		a.times.Add(1)
	}
	return a.island.Do(ctx, b)
}

// A place that cannot be opened is an error that says what to do.
func TestPlacesThatAreNotThere(t *testing.T) {
	g := servertest.Must(New(redisstore.New(&scripts{}, nil), Options{}))(t)
	if _, err := g.Place(config.Place{Global: true}); !errors.Is(err, config.ErrNoHome) {
		t.Errorf("without a home: %v", err)
	}
	for i := range mostPlaces {
		_ = servertest.Must(g.Place(config.Place{Lease: time.Duration(i+1) * time.Millisecond}))(t)
	}
	if _, err := g.Place(config.Place{Lease: time.Hour}); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("one lease more: %v", err)
	}
	g.Close()
}

// A service that ends says if what it leased could not be given back.
func TestCloseSaysWhatStaysLeased(t *testing.T) {
	for _, keeps := range []error{nil, errors.New("the home takes nothing back")} {
		synctest.Test(t, func(t *testing.T) {
			g, l, logged := overseas(t, island{Store: memstore.New(nil), takes: time.Millisecond, keeps: keeps}, time.Second)
			for range 10 {
				_ = servertest.Must(l.Allow(t.Context(), "k"))(t)
			}
			g.Close()
			if said := strings.Contains(logged.String(), "stay charged"); said != (keeps != nil) {
				t.Errorf("Settle returns %v, and the log is %q", keeps, logged)
			}
		})
	}
}

// A mood is a holder that does what a test says.
type mood struct {
	*memstore.Store
	spend func()
}

func (m mood) Spend(ctx context.Context, s lease.Spending) (lease.Held, error) {
	m.spend()
	return m.Store.Spend(ctx, s)
}

// The home decides if the region's Redis is late or known to be down, or if its client panics. A caller need not wait for it.
func TestARegionsRedisThatDoesNotAnswer(t *testing.T) {
	spending := lease.Spending{Key: "k", Cost: 1, Longest: 1e6}
	hangs, panics := func() { time.Sleep(10 * time.Second) }, func() { panic("a bug of the client") }
	for name, c := range map[string]struct {
		spend func()
		up    bool
		takes time.Duration
	}{"late": {hangs, true, time.Second}, "away": {hangs, false, 0}, "panics": {panics, true, 0}} {
		synctest.Test(t, func(t *testing.T) {
			r := &region{next: mood{memstore.New(nil), c.spend}, budget: time.Second, up: func() bool { return c.up }, counts: &counts{}}
			began := time.Now()
			held, err := r.Spend(t.Context(), spending)
			if took := time.Since(began); !held.Alone || err != nil || took != c.takes {
				t.Errorf("%s: %+v, %v after %v", name, held, err, took)
			}
			ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer leave()
			if err := r.Forget(t.Context(), "k"); err != nil {
				t.Errorf("%s: a reset: %v", name, err)
			}
			if _, err := r.Spend(ctx, spending); name == "late" && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that leaves gets %v", err)
			}
			time.Sleep(20 * time.Second)
		})
	}
}

// A home that is given longer than a second for a decision has as long for a lease.
func TestTheBudgetOfAHomeIsThatOfLeases(t *testing.T) {
	for _, budget := range []time.Duration{time.Second, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g, l, _ := overseas(t, island{Store: memstore.New(nil), takes: 2500 * time.Millisecond}, budget)
			leased := 0
			for range 1000 {
				if res, err := l.Allow(t.Context(), "k"); err == nil && res.Source == sash.FromLease {
					leased++
				}
				time.Sleep(10 * time.Millisecond)
			}
			if long := budget > time.Second; long != (leased > 900) {
				t.Errorf("with a budget of %v %d of 1000 calls are decided beside a home that is 2.5 s away", budget, leased)
			}
			g.Close()
		})
	}
}

// A home that fails for a while counts as lost until it answers again, even if no call needs it. Its counts are those of calls.
func TestAHomeIsLostAndFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged servertest.Log
		store := &scripts{}
		home := watching(t, time.Second, redisstore.New(store, nil), slog.New(slog.NewTextHandler(&logged, nil)))
		g := regionOf(t, home, quiet)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		home.Note(nil)
		home.Note(errors.New("LOADING"))
		time.Sleep(time.Minute)
		if h, s := g.Health(), home.Stats(); h.Home != "up" || s.Calls != 2 || s.Failed != 1 {
			t.Errorf("after one failure %+v, %+v", h, s)
		}
		store.hang(true)
		time.Sleep(10 * time.Second)
		if h, r := g.Health(), g.Report().Home; h.Home != "down" || h.Status != "degraded" || h.Cause != "budget" || r.Up || r.Calls != 2 || time.Since(r.Since) < 4*time.Second {
			t.Errorf("it is away, and known as %+v, %+v", h, r)
		}
		store.hang(false)
		time.Sleep(5 * time.Second)
		if h := g.Health(); h.Home != "up" || !home.Stats().Since.IsZero() {
			t.Errorf("it answers, and is known as %+v, %+v", h, home.Stats())
		}
		if text := logged.String(); strings.Count(text, "does not answer") != 1 || strings.Count(text, "answers again") != 1 {
			t.Errorf("logged:\n%s", text)
		}
		stop()
		servertest.Check(t, <-ended)
	})
}

// Log and health report a memory that is full, once and for as long as that lasts.
func TestAFullMemoryIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := NewMemory(memstore.Options{MaxBytes: 100 * 368}, slog.New(slog.NewTextHandler(&out, nil)))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		if _, err := m.Place(config.Place{Global: true}); !errors.Is(err, config.ErrNoHome) {
			t.Errorf("memory is a home: %v", err)
		}
		l := limiterOf(t, servertest.Must(m.Place(config.Place{Lease: time.Second}))(t), sash.PerHour(10))
		next := 0
		grow := func(n int) {
			t.Helper()
			for range n {
				_ = servertest.Must(l.Allow(ctx, fmt.Sprint(next)))(t)
				next++
			}
			time.Sleep(2 * occupancyEvery)
			synctest.Wait()
		}
		check := func(used float64, status, cause string, full int) {
			t.Helper()
			evicting := strings.Count(out.String(), "memory is full")
			if h := m.Health(); h.Status != status || h.Cause != cause || h.Store != "memory" || h.Memory != used || evicting != full {
				t.Errorf("%+v, and logged %d times:\n%s", h, evicting, &out)
			}
		}
		grow(79)
		check(0.79, "ok", "", 0)
		grow(1)
		check(0.8, "ok", "", 0)
		grow(20)
		check(1, "ok", "", 0)
		grow(1)
		check(1, "degraded", "full", 1)
		for range 10 {
			grow(10)
		}
		check(1, "degraded", "full", 1)
		time.Sleep(fullFor + time.Second)
		synctest.Wait()
		check(1, "ok", "", 1)
		grow(5)
		check(1, "degraded", "full", 2)
		if r := m.Report(); r.Memory.Keys != 100 || r.Memory.Evicted != 106 || time.Since(r.Since) > 3*time.Second {
			t.Errorf("%+v, %+v", r, r.Memory)
		}
		stop()
		servertest.Check(t, <-ended)
	})
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// A counter answers heart-beats in a synctest bubble.
type counter struct {
	mu    sync.Mutex
	n     int         // guarded by mu
	err   error       // guarded by mu
	beats []time.Time // guarded by mu
}

func (c *counter) says(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n, c.err = n, err
}

func (c *counter) beat(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beats = append(c.beats, time.Now())
	return c.n, c.err
}

// start runs a fleet until the test ends.
func start(t *testing.T, c *counter, floor int) *fleet {
	t.Helper()
	f := &fleet{floor: floor, beat: c.beat, log: quiet}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	synctest.Wait()
	return f
}

func (f *fleet) is(t *testing.T, want int, when string) {
	t.Helper()
	synctest.Wait()
	if got := f.instances(); got != want {
		t.Errorf("%s: %d instances, want %d", when, got, want)
	}
}

func TestAFleetIsCountedAtOnceAndThenAFewTimesInEachLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{n: 3}
		f := start(t, c, 0)
		f.is(t, 3, "at the start")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		var shortest, longest = time.Hour, time.Duration(0)
		for i := 1; i < len(c.beats); i++ {
			d := c.beats[i].Sub(c.beats[i-1])
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if longest > lives/3 || shortest < every/2 || longest-shortest < time.Second {
			t.Errorf("beats are %v to %v apart", shortest, longest)
		}
	})
}

func TestTheGreatestNumberOfAWhileCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{err: errors.New("connection refused")}
		f := start(t, c, 0)
		f.is(t, 0, "nobody has counted")
		c.says(5, nil)
		time.Sleep(every)
		f.is(t, 5, "Redis is there")
		c.says(5, errors.New("connection refused"))
		time.Sleep(time.Hour)
		f.is(t, 5, "Redis is gone for an hour")
		c.says(1, nil) // it has forgotten
		time.Sleep(every)
		f.is(t, 5, "the others have not called yet")
		time.Sleep(lives)
		f.is(t, 1, "the others would have called")
		c.says(2, nil)
		time.Sleep(every)
		f.is(t, 2, "another one came")
	})
}

// One of three primaries hangs, and no replica takes its place. What the others hold is decided as before; what it held
// is answered by failure mode, within the budget.
func TestOneNodeThatHangsIsNotTheWholeCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{NodeTimeout: time.Minute})
	client := clientOf(t, "redis+cluster://"+cluster.Primaries[1].Addr())
	const budget = 100 * time.Millisecond
	store := client.Detached(nil)
	var logged bytes.Buffer
	g, err := New(store, Options{Budget: budget, Instances: 1, Cluster: client.Cluster(), Log: slog.New(slog.NewTextHandler(&logged, nil))})
	servertest.Check(t, err)
	l := limiterOf(t, g.Store, sash.PerHour(90_000))
	policy := servertest.Must(sash.NewPolicy(nil, sash.PerHour(90_000)))(t)
	// Keys of the node that will hang, and those whose whole part is elsewhere.
	var hanging, healthy []string
	const ends = slots / 3 // where the first of three nodes' slots do
	for i := 0; len(hanging) < 20 || len(healthy) < 40; i++ {
		key := fmt.Sprint("subject", i)
		switch slot := store.Slot(key, policy); {
		case slot < ends && len(hanging) < 20:
			hanging = append(hanging, key)
		case slot*parts/slots > ends*parts/slots && len(healthy) < 40:
			healthy = append(healthy, key)
		}
	}
	decided := func(key string) bool {
		res, err := l.Allow(t.Context(), key)
		return err == nil && res.Source == driver.FromStore
	}
	for _, key := range append(hanging, healthy...) {
		servertest.Wait(t, key+" is not decided", func() bool { return decided(key) })
	}
	cluster.Primaries[0].Pause()
	var asked, answered, late atomic.Int64
	var wg sync.WaitGroup
	for worker := range 24 {
		wg.Go(func() {
			for i := range 150 {
				if n := worker*150 + i; n%3 == 0 {
					began := time.Now()
					if decided(hanging[n/3%len(hanging)]) {
						t.Error("a node that hangs has decided")
					}
					if time.Since(began) > budget+4*time.Second { // of a busy machine
						late.Add(1)
					}
				} else if asked.Add(1); decided(healthy[n%len(healthy)]) {
					answered.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d calls to nodes that work were decided", answered.Load(), asked.Load())
	if answered.Load() < asked.Load()*95/100 || late.Load() > 0 {
		t.Errorf("%d of %d calls to nodes that work were decided; %d answers were late", answered.Load(), asked.Load(), late.Load())
	}
	if h := g.Health(); h.Status != "degraded" {
		t.Errorf("health: %+v", h)
	}
	if hanging := cluster.Primaries[0].Addr(); !strings.Contains(logged.String(), "Redis is down") || !strings.Contains(logged.String(), hanging+" has not answered") {
		t.Errorf("the log does not name %s:\n%s", hanging, &logged)
	}
	cluster.Primaries[0].Resume()
	for _, key := range hanging {
		servertest.Wait(t, key+" is not decided again", func() bool { return decided(key) })
	}
	servertest.Wait(t, "the store is not up", func() bool { return g.Health().Status == "ok" })
}
