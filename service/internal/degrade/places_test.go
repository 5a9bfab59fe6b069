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

func (i island) Settle(ctx context.Context, sets ...driver.Settlement) error {
	if i.keeps != nil {
		return i.keeps
	}
	return i.Store.Settle(ctx, sets...)
}

var quota = config.Place{Global: true, Lease: 20 * time.Second}

func watching(t *testing.T, budget time.Duration, store driver.Store, log *slog.Logger) *Home {
	t.Helper()
	home, err := NewHome("far", budget, store, log)
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// regionOf returns a guard of a region with a home.
func regionOf(t *testing.T, home *Home, log *slog.Logger) *Guard {
	t.Helper()
	g, err := New(redisstore.New(&scripts{}, nil), Options{Home: home, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// overseas returns a guard of a region whose leases are in memory, and a limiter of a rule for all regions.
func overseas(t *testing.T, home island, budget time.Duration) (*Guard, *sash.Limiter, *bytes.Buffer) {
	t.Helper()
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	g := regionOf(t, watching(t, budget, home, log), log)
	g.places.home.holder.(*region).next = memstore.New(nil)
	store, err := g.Place(quota)
	if err != nil {
		t.Fatal(err)
	}
	l := limiterOf(t, store, sash.PerMinute(60_000))
	return g, l, &logged
}

// A home that does not answer is asked by few calls, also of rules without leases.
func TestASilentHomeAndARuleWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := &asked{island: island{Store: memstore.New(nil), takes: time.Hour}}
		log := slog.New(slog.DiscardHandler)
		g := regionOf(t, watching(t, time.Second, home, log), log)
		store, err := g.Place(config.Place{Global: true})
		if err != nil {
			t.Fatal(err)
		}
		l := limiterOf(t, store, sash.PerMinute(5))
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

// A place that cannot be opened is an error that says what to do.
func TestPlacesThatAreNotThere(t *testing.T) {
	g, err := New(redisstore.New(&scripts{}, nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Place(config.Place{Global: true}); !errors.Is(err, config.ErrNoHome) {
		t.Errorf("without a home: %v", err)
	}
	for i := range mostPlaces {
		if _, err := g.Place(config.Place{Lease: time.Duration(i+1) * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
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

// A mood is a holder that does what a test says.
type mood struct {
	*memstore.Store
	spend func()
}

func (m mood) Spend(ctx context.Context, s driver.Spending) (driver.Held, error) {
	m.spend()
	return m.Store.Spend(ctx, s)
}

// The home decides where the region's Redis is late, or known to be away, or its client panics; a caller need not wait for it.
func TestARegionsRedisThatDoesNotAnswer(t *testing.T) {
	spending := driver.Spending{Key: "k", Cost: 1, Longest: 1e6}
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

// A home that fails for a while is lost until it answers again, also where no call asks it. Its counts are those of calls.
func TestAHomeIsLostAndFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
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
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
