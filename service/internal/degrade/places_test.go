package degrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/config"
)

// An island is a home that takes a while to answer, and perhaps takes nothing back.
type island struct {
	*memstore.Store
	takes time.Duration
	keeps error
}

func (i island) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if err := i.cross(ctx); err != nil {
		return driver.Answer{}, err
	}
	return i.Store.Decide(ctx, req)
}

func (i island) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	if err := i.cross(ctx); err != nil {
		return nil, err
	}
	return driver.Passthrough{Next: i.Store}.DecideEach(ctx, reqs)
}

func (i island) cross(ctx context.Context) error {
	select {
	case <-time.After(i.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i island) Settle(ctx context.Context, set driver.Settlement) error {
	if i.keeps != nil {
		return i.keeps
	}
	return i.Store.Settle(ctx, set)
}

var quota = config.Place{Global: true, Lease: 20 * time.Second}

// overseas returns a guard of a region whose leases are in memory, and a limiter of a rule for all regions.
func overseas(t *testing.T, home island, budget time.Duration) (*Guard, *sash.Limiter, *bytes.Buffer) {
	t.Helper()
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	g, err := New(redisstore.New(&scripts{}, nil), Options{Home: NewHome("far", budget, home, log), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	g.places.home.holder.(*region).next = memstore.New(nil)
	store, err := g.Place(quota)
	if err != nil {
		t.Fatal(err)
	}
	l, err := sash.New(store, nil, sash.PerMinute(60_000))
	if err != nil {
		t.Fatal(err)
	}
	return g, l, &logged
}

// A home that does not answer is asked by few calls, also of rules without leases.
func TestASilentHomeAndARuleWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := &asked{island: island{Store: memstore.New(nil), takes: time.Hour}}
		log := slog.New(slog.DiscardHandler)
		g, err := New(redisstore.New(&scripts{}, nil), Options{Home: NewHome("far", time.Second, home, log), Log: log})
		if err != nil {
			t.Fatal(err)
		}
		store, err := g.Place(config.Place{Global: true})
		if err != nil {
			t.Fatal(err)
		}
		l, err := sash.New(store, nil, sash.PerMinute(5))
		if err != nil {
			t.Fatal(err)
		}
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

func (a *asked) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	a.times.Add(1)
	return a.island.Decide(ctx, req)
}

// A service that ends says if what it leased could not be given back.
func TestCloseSaysWhatStaysLeased(t *testing.T) {
	for _, keeps := range []error{nil, errors.New("the home takes nothing back")} {
		synctest.Test(t, func(t *testing.T) {
			g, l, logged := overseas(t, island{Store: memstore.New(nil), takes: time.Millisecond, keeps: keeps}, time.Second)
			for range 10 {
				if _, err := l.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			g.Close()
			if said := strings.Contains(logged.String(), "stay charged"); said != (keeps != nil) {
				t.Errorf("Settle returns %v, and the log is %q", keeps, logged)
			}
		})
	}
}

// A holder for tests does what a test says.
type mood struct {
	*memstore.Store
	takes  time.Duration
	panics bool
}

func (m *mood) Spend(ctx context.Context, s driver.Spending) (driver.Held, error) {
	time.Sleep(m.takes)
	if m.panics {
		panic("a bug of the client")
	}
	return m.Store.Spend(ctx, s)
}

// A region's Redis that hangs is left alone after a few calls, also if their callers leave before its budget has passed.
func TestARegionsRedisThatHangsAndCallersThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &region{next: &mood{memstore.New(nil), 10 * time.Second, false}, budget: time.Second, counts: &counts{}}
		for range 2 * mostFailures {
			ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if _, err := r.Spend(ctx, driver.Spending{Key: "k", Cost: 1, Longest: 1e6}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that leaves gets %v", err)
			}
			leave()
		}
		time.Sleep(time.Second)
		_, _ = r.Spend(t.Context(), driver.Spending{Key: "k", Cost: 1, Longest: 1e6}) // the one that tries
		began := time.Now()
		held, err := r.Spend(t.Context(), driver.Spending{Key: "k", Cost: 1, Longest: 1e6})
		if took := time.Since(began); !held.Alone || err != nil || took > 0 {
			t.Errorf("a call gets %+v, %v after %v", held, err, took)
		}
		time.Sleep(20 * time.Second)
	})
}

// A client that panics fails its call, and not the process.
func TestARegionsRedisThatPanics(t *testing.T) {
	r := &region{next: &mood{memstore.New(nil), 0, true}, budget: time.Second, counts: &counts{}}
	held, err := r.Spend(t.Context(), driver.Spending{Key: "k", Cost: 1, Longest: 1e6})
	if !held.Alone || err != nil {
		t.Errorf("a call gets %+v, %v", held, err)
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

// A home that fails for a while is lost until it answers again, also where no call asks it. Its counts are those of calls.
func TestAHomeIsLostAndFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		store := &scripts{err: errors.New("LOADING Redis is loading the dataset in memory")}
		home := NewHome("far", time.Second, redisstore.New(store, nil), slog.New(slog.NewTextHandler(&logged, nil)))
		g, err := New(redisstore.New(&scripts{}, nil), Options{Home: home, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		home.Note(40*time.Millisecond, nil)
		home.Note(time.Millisecond, errors.New("LOADING"))
		if h := g.Health(); h.Home != "up" || home.Stats().Failed != 1 || home.Stats().Way != 40*time.Millisecond {
			t.Errorf("after one failure %+v, %+v", h, home.Stats())
		}
		time.Sleep(5 * time.Second)
		if h, r := g.Health(), g.Report().Home; h.Home != "down" || h.Status != "degraded" || r.Up || r.Calls != 2 || time.Since(r.Since) < 4*time.Second {
			t.Errorf("it is away, and known as %+v, %+v", h, r)
		}
		home.Note(80*time.Millisecond, nil)
		if h := g.Health(); h.Home != "up" || !home.Stats().Since.IsZero() || home.Stats().Way != 60*time.Millisecond {
			t.Errorf("it answers, and is known as %+v, %+v", h, home.Stats())
		}
		if text := logged.String(); strings.Count(text, "does not answer") != 1 || strings.Count(text, "answers again") != 1 {
			t.Errorf("logged:\n%s", text)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
