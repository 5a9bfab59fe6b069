package lease_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/window"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// A place is a region in a test.
type place struct {
	*sash.Limiter
	t    *testing.T
	home *far // the way there
}

// newPlace opens a process of a region, whose store is near.
func newPlace(t *testing.T, home, near *memstore.Store, own lease.Own, limits ...sash.Limit) *place {
	t.Helper()
	p := &place{t: t, home: &far{Store: home}}
	own.Store = near
	store := shared(t, p.home, near, time.Second, &lease.Options{Own: &own})
	p.Limiter = newLimiter(t, store, nil, limits...)
	return p
}

// tenth is the own share of two regions.
var tenth = lease.Own{Regions: 2, Percent: 10}

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
		here := newPlace(t, home, memstore.New(nil), tenth, limit)
		there := newPlace(t, home, memstore.New(nil), tenth, limit)
		before, own, err := here.spend(50)
		if before != 50 || own > 0 || err != nil {
			t.Fatal(before, own, err)
		}
		there.spend(1)
		time.Sleep(10 * time.Second) // every lease has gone back
		here.home.cut.Store(true)
		admitted, own, err := here.spend(300)
		if admitted != 100 || own != 100 || err != nil {
			t.Errorf("cut off: %d admitted, %d of the own share, %v", admitted, own, err)
		}
		others, own, err := there.spend(1500)
		if others+1 != 1000-100-50 || own != 100 || err != nil {
			t.Errorf("the other region: %d admitted, %d of its own share, %v", others, own, err)
		}
		here.home.cut.Store(false)
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

// A change at once admits as many units more, during a window, as the shares or the home's part grow by. In two steps it
// admits none: first the part that is to lose units, by the number of regions; a window later the other grows.
func TestAChangeOfTheOwnShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fifth, half := lease.Own{Regions: 2, Percent: 20}, lease.Own{Regions: 4, Percent: 10} // half leaves the home what fifth does
		for _, c := range []struct {
			before, after lease.Own
			sum           int
		}{
			{tenth, tenth, 1000},
			{tenth, fifth, 1200},                     // at once
			{tenth, half, 1000}, {half, fifth, 1000}, // in two steps
			{fifth, tenth, 1200},
			{fifth, half, 1000}, {half, tenth, 1000},
		} {
			home, near := memstore.New(nil), []*memstore.Store{memstore.New(nil), memstore.New(nil)}
			sum := 0
			for _, own := range []lease.Own{c.before, c.after} {
				for _, near := range near {
					p := newPlace(t, home, near, own, sash.Every(1000, 10*time.Minute))
					n, _, err := p.spend(1500)
					if sum += n; err != nil {
						t.Error(err)
					}
					time.Sleep(10 * time.Second) // every lease has gone back
				}
			}
			if sum > c.sum || c.sum > 1000 && sum != c.sum {
				t.Errorf("from %+v to %+v: %d units, want %d", c.before, c.after, sum, c.sum)
			}
		}
	})
}

// Of the own share, units are given back where they were charged; a peek shows it, and a reset begins it anew.
func TestChargesOfTheOwnShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := memstore.New(nil)
		here := newPlace(t, home, memstore.New(nil), tenth, sash.Every(1000, 10*time.Minute))
		here.home.cut.Store(true)
		r, err := here.Reserve(t.Context(), "k", 80, nil)
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
		here.home.cut.Store(false)
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

// Shares that leave the home nothing are errors of whoever configures them.
func TestOwnSharesThatDoNotFit(t *testing.T) {
	near := memstore.New(nil)
	for _, own := range []lease.Own{{}, {0, 10, near}, {100, 1, near}, {2, 0, near}, {2, 50, near}, {3, 34, near}, {2, 10, nil}} {
		if _, err := lease.Shared(memstore.New(nil), near, time.Second, &lease.Options{Own: &own}); err == nil {
			t.Errorf("%+v is accepted", own)
		}
	}
}

// A waiting store is one whose servers owe an answer.
type waiting struct {
	*memstore.Store
	wait time.Duration
}

func (w waiting) Waits() time.Duration        { return w.wait }
func (w waiting) Silent(time.Duration) string { return "" }

// What stands before leases learns of a home that is silent, and of a region's own store that is.
func TestLeasesWaitForHomeAndHolder(t *testing.T) {
	memory := memstore.New(nil)
	for name, c := range map[string]struct {
		home, near driver.Store
		want       time.Duration
	}{
		"home":    {waiting{memory, 3 * time.Second}, waiting{memory, time.Second}, 3 * time.Second},
		"holder":  {waiting{memory, 0}, waiting{memory, time.Second}, time.Second},
		"memory":  {waiting{memory, time.Second}, memory, time.Second},
		"unknown": {struct{ driver.Store }{memory}, memory, math.MaxInt64},
	} {
		store := shared(t, c.home, c.near.(window.Holder), time.Second, nil)
		if w, known := driver.Behind[driver.Witness](store); !known || w.Waits() != c.want {
			t.Errorf("%s: known %v, want %v", name, known, c.want)
		}
	}
}
