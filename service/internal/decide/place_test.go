package decide

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// A part of no units beside a charged part of the same rule gets the units left, and not a guess.
func TestALookBesideLeasedUnits(t *testing.T) {
	d := deciderOn(t, "domain: d\ndescriptors: [{key: a, limits: [100/10m], lease: 2s}]\n", memstore.New(nil))
	want(t, "first", ask(t, d, part("a=1", 30)), "ok:70")
	want(t, "both", ask(t, d, part("a=1", 0), part("a=2", 1)), "ok:70 | ok:99")
	want(t, "both, the other way round", ask(t, d, part("a=1", 1), part("a=2", 0)), "ok:69 | ok:99")
}

// A lease makes windows longer. A lease that is long for the window of an override or candidate would admit a fraction of its limit.
func TestALeaseThatIsTooLongForOtherLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := parse(t, "domain: d\ndescriptors: [{key: a, limits: [6000/10m], lease: 30s, candidate: {limits: [50/1s]}}]\n")
		store := memstore.New(nil)
		leased := must(lease.New(store, 30*time.Second))(t)
		defer func() { _ = leased.Release(t.Context()) }()
		d, err := New(cfg, func(p config.Place) (driver.Store, error) {
			if p.Lease == 0 {
				return store, nil
			}
			return leased, nil
		})
		check(t, err)
		d.Except([]Exception{exception("a=1", time.Hour, limitsFrom(t, "50/1s")...)})
		for second := range 3 {
			for range 50 {
				if v := decideOne(t, d, "a=1"); !v.Allowed() {
					t.Fatalf("second %d: the override of 50 a second refuses", second)
				}
				if v := decideOne(t, d, "a=2"); v.Candidate == nil || v.Candidate.Refused {
					t.Fatalf("second %d: the candidate of 50 a second refuses: %+v", second, v.Candidate)
				}
			}
			time.Sleep(time.Second)
		}
	})
}

// A request limit in the place of a rule with scope: global is one limit over all regions, as the rule is.
func TestARequestLimitOfAGlobalRule(t *testing.T) {
	for _, test := range []struct {
		limit sash.Limit
		key   string
		want  int // of both regions
	}{
		{sash.Every(5, time.Hour), "a=1", 5},
		{sash.Every(200, time.Hour), "a=1", 200},
		{sash.PerCalendar(5, sash.CalendarMonth, time.UTC), "a=1", 5},
		{sash.Every(5, time.Hour), "b=1", 10},
	} {
		t.Run(test.limit.String()+" of "+test.key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home, admitted := memstore.New(nil), 0
				for range 2 {
					d, release := inRegion(t, home)
					for range test.limit.Units {
						asked := part(test.key, 1)
						asked.RequestLimit = &test.limit
						if a := must(one(t.Context(), d, Request{Domain: "d", Parts: []Part{asked}}))(t); a.Allowed() {
							admitted++
						}
						synctest.Wait()
					}
					release()
				}
				if admitted != test.want {
					t.Errorf("two regions admit %d, want %d", admitted, test.want)
				}
			})
		})
	}
}

// After a reset nobody spends units that were leased before it, even while an override is in force or after it has ended.
func TestResetEndsTheLeasesOfAnOverride(t *testing.T) {
	for _, over := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, release := inRegion(t, memstore.New(nil))
			defer release()
			ask := func() Answer {
				a := decideOne(t, d, "a=1")
				synctest.Wait()
				time.Sleep(time.Millisecond)
				return a
			}
			d.Except([]Exception{exception("a=1", 100*time.Millisecond, limitsFrom(t, "7000/10m")...)})
			for range 50 {
				ask()
			}
			if over {
				time.Sleep(100 * time.Millisecond)
				for range 50 {
					ask()
				}
				d.Except([]Exception{exception("a=1", time.Hour, limitsFrom(t, "7000/10m")...)})
			}
			reset := time.Now()
			check(t, d.Reset(t.Context(), "d", part("a=1", 1).Entries))
			for range 2 {
				if a := ask(); a.At.Before(reset) {
					t.Errorf("a unit that was charged %v before the reset is spent", reset.Sub(a.At))
				}
				d.Except(nil)
			}
		})
	}
}

// inRegion returns a decider of a region, and what gives back its leases.
func inRegion(t *testing.T, home *memstore.Store) (d *Decider, release func()) {
	t.Helper()
	cfg := parse(t, "domain: d\ndescriptors: [{key: a, limits: [6000/10m], scope: global}, {key: b, limits: [6000/10m]}]\n")
	region, stores := memstore.New(nil), make(map[config.Place]*lease.Store)
	var err error
	d, err = New(cfg, func(p config.Place) (driver.Store, error) {
		switch {
		case !p.Global:
			return region, nil
		case p.Lease == 0:
			return home, nil
		case stores[p] == nil:
			if stores[p], err = lease.Shared(home, region, p.Lease, nil); err != nil {
				return nil, err
			}
		}
		return stores[p], nil
	})
	check(t, err)
	return d, func() {
		for _, store := range stores {
			check(t, store.Release(t.Context()))
		}
	}
}

// A cost that the store of a place never admits is no failure of that store.
func TestACostAboveWhatRegionsShareIsNoFailure(t *testing.T) {
	err := failure(t.Context(), fmt.Errorf("%w: 900 units", sash.ErrCostAboveLimit))
	if !errors.Is(err, sash.ErrCostAboveLimit) || errors.Is(err, sash.ErrUnavailable) {
		t.Error(err)
	}
}

// Of several descriptors in one request the strictest mode counts, each for its own units.
func TestTheStrictestModeCounts(t *testing.T) {
	const text = `
domain: d
descriptors:
- {key: open, limits: [100/1m], on_unavailable: open}
- {key: cheap, limits: [100/1m], on_unavailable: {1: open}}
- {key: local, limits: [4/1m], on_unavailable: {20: local}}
- {key: closed, limits: [100/1m]}
`
	for name, c := range map[string]struct {
		units    map[string]int64
		admitted int // of ten; -1 is an error
	}{
		"open":                        {map[string]int64{"open": 50}, 10},
		"open, and one unit":          {map[string]int64{"open": 50, "cheap": 1}, 10},
		"open, and more units":        {map[string]int64{"open": 50, "cheap": 2}, -1},
		"local":                       {map[string]int64{"local": 1}, 2},
		"open and local":              {map[string]int64{"cheap": 1, "local": 1}, 2},
		"open, local and closed":      {map[string]int64{"open": 1, "local": 1, "closed": 1}, -1},
		"a limit that nobody matches": {map[string]int64{"other": 1}, 10},
	} {
		d := alone(t, text)
		var parts []Part
		for key, units := range c.units {
			parts = append(parts, part(key+"=a", units))
		}
		admitted := 0
		for range 10 {
			answers, err := d.Decide(t.Context(), Request{Domain: "d", Parts: parts, Lenient: true})
			if err != nil {
				if !errors.Is(err, sash.ErrUnavailable) {
					t.Errorf("%s: %v", name, err)
				}
				admitted = -1
				break
			}
			if !slices.ContainsFunc(answers, func(a Answer) bool { return a.Refused }) {
				admitted++
			}
		}
		if admitted != c.admitted {
			t.Errorf("%s: %d admitted, want %d", name, admitted, c.admitted)
		}
	}
}
