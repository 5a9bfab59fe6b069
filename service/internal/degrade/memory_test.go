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
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

// Log and health report a memory that is nearly full, and full, once and for as long as that lasts.
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
		store, err := m.Place(config.Place{Lease: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l := limiterOf(t, store, sash.PerHour(10))
		next := 0
		grow := func(n int) {
			t.Helper()
			for range n {
				if _, err := l.Allow(ctx, fmt.Sprint(next)); err != nil {
					t.Fatal(err)
				}
				next++
			}
			time.Sleep(2 * occupancyEvery)
			synctest.Wait()
		}
		check := func(status, cause string, warnings, full int) {
			t.Helper()
			nearly, evicting := strings.Count(out.String(), "nearly full"), strings.Count(out.String(), "memory is full")
			if h := m.Health(); h.Status != status || h.Cause != cause || h.Store != "memory" || nearly != warnings || evicting != full {
				t.Errorf("%+v, and logged %d and %d times:\n%s", h, nearly, evicting, &out)
			}
		}
		grow(79)
		check("ok", "", 0, 0)
		grow(1)
		check("ok", "", 1, 0)
		grow(20)
		check("ok", "", 1, 0)
		grow(1)
		check("degraded", "full", 1, 1)
		for range 10 {
			grow(10)
		}
		check("degraded", "full", 1, 1)
		time.Sleep(fullFor + time.Second)
		synctest.Wait()
		check("ok", "", 1, 1)
		grow(5)
		check("degraded", "full", 1, 2)
		if r := m.Report(); r.Memory.Keys != 100 || r.Memory.Evicted != 106 || time.Since(r.Since) > 3*time.Second {
			t.Errorf("%+v, %+v", r, r.Memory)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
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
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
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
	if err != nil {
		t.Fatal(err)
	}
	l := limiterOf(t, g.Store, sash.PerHour(90_000))
	policy, err := sash.NewPolicy(nil, sash.PerHour(90_000))
	if err != nil {
		t.Fatal(err)
	}
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
					if time.Since(began) > budget+time.Second {
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
