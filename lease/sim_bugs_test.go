package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.com/sash/driver"
)

// arrives lets a lease last from when its answer arrives.
type arrives struct{ simHolder }

func (h arrives) Bring(ctx context.Context, e driver.Errand) (kept bool, err error) {
	if e.Units > 0 {
		e.Longest += h.clock() - e.Began
	}
	return h.simHolder.Bring(ctx, e)
}

// twice is a holder that goes on keeping what it has given back, until Bring is called again.
type twice struct{ simHolder }

func (h twice) Return(ctx context.Context, key string, began, keep int64) (int64, error) {
	held, err := h.simHolder.Spend(ctx, driver.Spending{Key: key, Cost: 1, Longest: h.s.longest.Microseconds(), Again: true})
	if err != nil || !held.Spent {
		return h.simHolder.Return(ctx, key, began, keep)
	}
	return held.Left, nil
}

// denies is a holder that keeps leases and says that it does not.
type denies struct{ simHolder }

func (h denies) Bring(ctx context.Context, e driver.Errand) (bool, error) {
	_, err := h.simHolder.Bring(ctx, e)
	return false, err
}

// hurries starts leases at once that the home has booked for later.
type hurries struct{ simHolder }

func (h hurries) Bring(ctx context.Context, e driver.Errand) (bool, error) {
	e.Longest += e.Delay
	e.Delay = 0
	return h.simHolder.Bring(ctx, e)
}

// shortens is a home that counts for as long as the limits say.
type shortens struct{ simHome }

func (h shortens) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	req.Policy = limited(req.Policy, func(l *driver.Limit, _ int) { l.Window -= h.s.longest.Microseconds() })
	return h.simHome.Decide(ctx, req)
}

// limited returns a policy with other limits.
func limited(policy *driver.Policy, change func(l *driver.Limit, i int)) *driver.Policy {
	other := *policy
	other.Limits = slices.Clone(policy.Limits)
	for i := range other.Limits {
		change(&other.Limits[i], i)
	}
	return &other
}

// forgetful does not drop the leases of a region when a key is reset.
type forgetful struct{ simHolder }

func (h forgetful) Forget(context.Context, string) error { return nil }

// loose asks the home four times for each decision.
type loose struct{ simHome }

func (h loose) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	look := req
	look.Cost, look.Within = 0, 0
	for range 5 {
		_, _ = h.simHome.Decide(ctx, look)
	}
	return h.simHome.Decide(ctx, req)
}

// guesses takes an answer that is lost for an admission.
type guesses struct{ simHome }

func (h guesses) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	answer, err := h.simHome.Decide(ctx, req)
	if errors.Is(err, errTimeout) {
		return driver.NewAnswer(h.s.home.clock.now().UnixMicro(), 0, make([]driver.Status, len(req.Policy.Limits))), nil
	}
	return answer, err
}

// generous is a home that does not take the own shares of regions off its limits.
type generous struct{ simHome }

func (h generous) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	req.Policy = limited(req.Policy, func(l *driver.Limit, i int) { l.Units = h.s.limits[i].Units })
	return h.simHome.Decide(ctx, req)
}

// alone counts the own share of each process for itself.
type alone struct{ simNear }

func (n alone) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	req.Key += fmt.Sprint(n.id)
	return n.simNear.Decide(ctx, req)
}

// forsakes lets a region take the home for down for ever.
type forsakes struct{ simHolder }

func (h forsakes) Spend(ctx context.Context, s driver.Spending) (driver.Held, error) {
	held, err := h.simHolder.Spend(ctx, s)
	if h.region == 2 && h.s.now() > h.s.end {
		return driver.Held{At: held.At, Down: true, Wait: 1000}, err
	}
	return held, err
}

// stampedes lets every call go home as long as calls home, with their wait for a connection, take longer than half a lease.
type stampedes struct{ simHolder }

func (h stampedes) Spend(ctx context.Context, s driver.Spending) (driver.Held, error) {
	h.mu.Lock()
	long := h.took > h.s.longest/2
	h.mu.Unlock()
	if long {
		return driver.Held{At: h.clock(), Alone: true}, nil
	}
	return h.simHolder.Spend(ctx, s)
}

// The simulation finds what is put in on purpose.
func TestTheSimulationFindsBugs(t *testing.T) {
	for name, b := range map[string]bug{
		"a lease lasts from when its answer arrives":     {holder: func(h simHolder) driver.Holder { return arrives{h} }, found: "after their charge"},
		"a booked lease starts at once":                  {holder: func(h simHolder) driver.Holder { return hurries{h} }, found: "units of"},
		"what is given back is spent too":                {holder: func(h simHolder) driver.Holder { return twice{h} }, found: "units of"},
		"a lease that was kept is given back":            {holder: func(h simHolder) driver.Holder { return denies{h} }, found: "units of"},
		"the home counts no longer than the limits":      {home: func(h simHome) driver.Store { return shortens{h} }, found: "units of"},
		"an answer that was lost is an admission":        {home: func(h simHome) driver.Store { return guesses{h} }, found: "nothing at its instant"},
		"the home is asked too often":                    {home: func(h simHome) driver.Store { return loose{h} }, found: "called home"},
		"a reset leaves leases":                          {holder: func(h simHolder) driver.Holder { return forgetful{h} }, found: "before the reset"},
		"a region does not recover":                      {holder: func(h simHolder) driver.Holder { return forsakes{h} }, found: "has no admission"},
		"own shares are not taken off the home's limits": {home: func(h simHome) driver.Store { return generous{h} }, found: "units of"},
		"each process of a region has an own share":      {near: func(n simNear) driver.Store { return alone{n} }, found: "units of"},
		"a wait for connections is taken for the way":    {holder: func(h simHolder) driver.Holder { return stampedes{h} }, found: "of a crowd fails"},
		"clocks of regions are slow":                     {rate: 300_000, found: "after their charge"},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 200
			for seed := uint64(1); seed <= most; seed++ {
				problems, _ := simulate(t, seed, &b)
				if i := slices.IndexFunc(problems, func(p string) bool { return strings.Contains(p, b.found) }); i >= 0 {
					t.Logf("found with seed %d: %v", seed, problems[i])
					return
				}
			}
			t.Errorf("%d seeds did not find it", most)
		})
	}
}
