package lease

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A cable is the way of a region to the home. While it is cut nothing comes back.
type cable struct {
	driver.Passthrough
	way   time.Duration // how long an answer takes
	cut   atomic.Bool
	swaps atomic.Int64
}

func (c *cable) passes(ctx context.Context) error {
	if c.cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(c.way):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (c *cable) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if err := c.passes(ctx); err != nil {
		return driver.Answer{}, err
	}
	return c.Passthrough.Decide(ctx, req)
}

func (c *cable) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	if err := c.passes(ctx); err != nil {
		return driver.Answer{}, err
	}
	return c.Passthrough.DecideOnce(ctx, id, req)
}

func (c *cable) Settle(ctx context.Context, set driver.Settlement) error {
	if err := c.passes(ctx); err != nil {
		return err
	}
	return c.Passthrough.Settle(ctx, set)
}

func (c *cable) Swap(ctx context.Context, key string, s driver.Swap) (driver.Swapped, error) {
	c.swaps.Add(1)
	if err := c.passes(ctx); err != nil {
		return driver.Swapped{}, err
	}
	return c.Passthrough.Swap(ctx, key, s)
}

// A place is a region in a test.
type place struct {
	*sash.Limiter
	t     *testing.T
	cable *cable
	store *Store
	own   *Own
}

// newPlace opens a process of a region, whose store is near.
func newPlace(t *testing.T, home, near *memstore.Store, name string, regions, percent int, limits ...sash.Limit) *place {
	t.Helper()
	p := &place{t: t, cable: &cable{Passthrough: driver.Passthrough{Next: home}}, own: &Own{name, regions, percent, near}}
	var err error
	if p.store, err = Shared(p.cable, near, time.Second, &Options{Own: p.own}); err != nil {
		t.Fatal(err)
	}
	if p.Limiter, err = sash.New(p.store, nil, limits...); err != nil {
		t.Fatal(err)
	}
	return p
}

// spend calls so often, and returns how many calls were admitted, how many of them by the own share, and the last error.
func (p *place) spend(calls int) (admitted, own int, failed error) {
	p.t.Helper()
	for range calls {
		res, err := p.Allow(p.t.Context(), "k")
		if err != nil {
			failed = err
			continue
		}
		if res.Allowed {
			admitted++
			if res.Source == sash.FromOwn {
				own++
			}
		} else if res.RetryAfter <= 0 {
			p.t.Errorf("a refusal without a time: %+v", res)
		}
	}
	return admitted, own, failed
}

// A region that is cut off spends what it holds, then its own share, and no more. The others have the rest. Once it is back
// nothing is charged twice.
func TestTheOwnShareOfARegionThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := memstore.New(nil)
		limit := sash.Every(1000, 10*time.Minute)
		here := newPlace(t, home, memstore.New(nil), "here", 2, 10, limit)
		there := newPlace(t, home, memstore.New(nil), "there", 2, 10, limit)
		before, own, err := here.spend(50)
		if before != 50 || own > 0 || err != nil {
			t.Fatal(before, own, err)
		}
		there.spend(1)
		time.Sleep(10 * time.Second) // every lease has gone back
		here.cable.cut.Store(true)
		admitted, own, err := here.spend(300)
		if admitted != 100 || own != 100 || err != nil {
			t.Errorf("cut off: %d admitted, %d of the own share, %v", admitted, own, err)
		}
		others, own, err := there.spend(1500)
		if others+1 != 1000-100-50 || own != 100 || err != nil {
			t.Errorf("the other region: %d admitted, %d of its own share, %v", others, own, err)
		}
		here.cable.cut.Store(false)
		time.Sleep(10 * time.Second)
		if n, _, err := here.spend(300); n != 0 || err != nil {
			t.Errorf("%d more once it is back, %v", n, err)
		}
		time.Sleep(11 * time.Minute) // all of it has left
		if n, own, err := here.spend(1500); n != 900 || own != 100 || err != nil {
			t.Errorf("later %d are admitted, %d of the own share, %v: a region alone has all but the own shares of others", n, own, err)
		}
		time.Sleep(10 * time.Second)
	})
}

// A region without an agreement has no own share, says why, and leaves the own shares of others alone.
func TestRegionsWithoutAnOwnShare(t *testing.T) {
	limit := sash.Every(1000, 10*time.Minute)
	for name, c := range map[string]struct {
		region           string
		regions, percent int
		never            bool
		why              string
	}{
		"another percentage":  {"there", 2, 5, false, "agreed on 2 regions with 10 % of each limit for each, and this one has 2 regions with 5 %"},
		"another number":      {"there", 3, 10, false, "and this one has 3 regions"},
		"the name of another": {"here", 2, 10, false, `another store has the name "here"`},
		"never connected":     {"there", 2, 10, true, "does not know what regions have agreed on"},
		"one region too many": {"more", 2, 10, false, `2 regions have own shares already, and "more" is not one of them`},
		"it is as it should":  {"there", 2, 10, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home := memstore.New(nil)
				here := newPlace(t, home, memstore.New(nil), "here", 2, 10, limit)
				if err := here.store.Agree(t.Context()); err != nil {
					t.Fatal(err)
				}
				if name == "one region too many" {
					if err := newPlace(t, home, memstore.New(nil), "there", 2, 10, limit).store.Agree(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				wrong := newPlace(t, home, memstore.New(nil), c.region, c.regions, c.percent, limit)
				wrong.cable.cut.Store(c.never)
				err := wrong.store.Agree(t.Context())
				if c.never {
					_, _, err = wrong.spend(1)
				}
				if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
					t.Errorf("%v, want %q", err, c.why)
				}
				first, own, err := wrong.spend(1200)
				if most := 800; c.why != "" && (own > 0 || first > most || !c.never && first != most || (err != nil) != c.never) {
					t.Errorf("%d are admitted, %d of an own share, %v", first, own, err)
				}
				wrong.cable.cut.Store(true)
				time.Sleep(5 * time.Second)
				late, _, err := wrong.spend(5)
				if late > 0 || c.why != "" && !errors.Is(err, sash.ErrUnavailable) && err == nil && first < 800 {
					t.Errorf("cut off: %d are admitted, %v", late, err)
				}
				others, own, _ := here.spend(1500)
				if sum := first + others; sum > 1000 || own != 100 {
					t.Errorf("%d in all, %d of the own share of the other region", sum, own)
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// A process that starts while its region is cut off finds the agreement in the region's store. A store that has lost its
// state has lost charges of the own share too: there is none until the agreement of the old one has ended.
func TestARestartWhileARegionIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, near := memstore.New(nil), memstore.New(nil)
		limit := sash.Every(1000, 10*time.Minute)
		first := newPlace(t, home, near, "here", 2, 10, limit)
		if err := first.store.Agree(t.Context()); err != nil {
			t.Fatal(err)
		}
		first.cable.cut.Store(true)
		if n, own, err := first.spend(60); n != 60 || own != 60 || err != nil {
			t.Fatal(n, own, err)
		}
		second := newPlace(t, home, near, "here", 2, 10, limit)
		second.cable.cut.Store(true)
		if n, own, err := second.spend(60); n != 40 || own != 40 || err != nil {
			t.Errorf("a process that starts now: %d, %d of the own share, %v", n, own, err)
		}
		lost := newPlace(t, home, memstore.New(nil), "here", 2, 10, limit)
		lost.cable.cut.Store(true)
		if n, _, err := lost.spend(60); n != 0 || !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("a store that has lost its state: %d, %v", n, err)
		}
		lost.cable.cut.Store(false)
		time.Sleep(5 * time.Second)
		if err := lost.store.Agree(t.Context()); err == nil || !strings.Contains(err.Error(), "another store has the name") {
			t.Error(err)
		}
		if n, own, err := lost.spend(1000); n != 800 || own != 0 || err != nil {
			t.Errorf("%d, %d of the own share, %v", n, own, err)
		}
		time.Sleep(2*ownLasts + 5*time.Minute)
		if err := lost.store.Agree(t.Context()); err != nil {
			t.Error(err)
		}
		if n, own, err := lost.spend(1000); n != 900 || own != 100 || err != nil {
			t.Errorf("%d, %d of the own share, %v", n, own, err)
		}
		time.Sleep(10 * time.Second)
	})
}

// Of the own share, units are given back where they were charged; a peek shows it, and a reset begins it anew.
func TestChargesOfTheOwnShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := memstore.New(nil)
		here := newPlace(t, home, memstore.New(nil), "here", 2, 10, sash.Every(1000, 10*time.Minute))
		if err := here.store.Agree(t.Context()); err != nil {
			t.Fatal(err)
		}
		here.cable.cut.Store(true)
		r, err := here.Reserve(t.Context(), "k", 80)
		if err != nil || !r.Allowed() || r.Result().Source != sash.FromOwn || r.Result().Cause == nil {
			t.Fatal(r, err)
		}
		if n, _, err := here.spend(30); n != 20 || err != nil {
			t.Error(n, err)
		}
		if err := r.Settle(t.Context(), 50); err != nil {
			t.Error(err)
		}
		if res, err := here.Peek(t.Context(), "k"); err != nil || res.Remaining != 30 {
			t.Errorf("%+v, %v", res, err)
		}
		if n, _, err := here.spend(50); n != 30 || err != nil {
			t.Error(n, err)
		}
		if res, err := here.AllowN(t.Context(), "k", 101); err == nil {
			t.Errorf("more than the own share: %+v", res)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := here.AllowOnce(ctx, "id", "new", 1); err == nil {
			t.Error("a call with an ID is decided while the region is cut off")
		}
		here.cable.cut.Store(false)
		time.Sleep(5 * time.Second)
		if err := here.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		if n, own, err := here.spend(1000); n != 900 || own != 100 || err != nil {
			t.Error(n, own, err)
		}
		if _, err := here.AllowN(t.Context(), "k", 900); !errors.Is(err, sash.ErrCostAboveLimit) || errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("a call that is dearer than the home's part: %v", err)
		}
		time.Sleep(10 * time.Second)
	})
}

// Limits of which a hundredth is no unit, and windows longer than an agreement, have no own part: the home has all of them.
func TestLimitsWithoutAnOwnPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limits := range [][]sash.Limit{
			{sash.Every(9, time.Minute)},
			{sash.Every(1000, time.Minute), sash.Every(9, time.Second)},
			{sash.Every(9, 25*time.Hour)},
		} {
			here := newPlace(t, memstore.New(nil), memstore.New(nil), "here", 2, 10, limits...)
			if n, own, err := here.spend(50); n != 9 || own != 0 || err != nil {
				t.Errorf("%v: %d, %d of the own share, %v", limits, n, own, err)
			}
			here.cable.cut.Store(true)
			time.Sleep(5 * time.Minute)
			if n, _, err := here.spend(1); n != 0 || err == nil {
				t.Errorf("%v: %d while it is cut off, %v", limits, n, err)
			}
		}
		time.Sleep(10 * time.Second)
	})
}
