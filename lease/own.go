package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/sash"
	"example.com/sash/driver"
)

// Own is a region's own share: a part of each limit that the region counts in its own store, and the home does not. Regions
// and Percent are the same in all processes of all regions. To change them without admitting more than the limit, see the
// package.
type Own struct {
	// Regions is how many regions share the home. Percent is the part of each limit that each of them has,
	// rounded down to whole units. Together they have less than the limit, and the home has the rest.
	Regions, Percent int
	// Store is the region's own store: the one that holds its leases, or the same with other decorators.
	Store driver.Store
}

const ownDrift = 1024 // own charges count longer by this part: the region's clock may be faster

func (o *Own) check() error {
	switch {
	case o.Regions < 1 || o.Percent < 1 || o.Regions >= 100 || o.Regions*o.Percent >= 100:
		return fmt.Errorf("lease: %d regions cannot have %d %% of each limit each: give a percentage that leaves the home a part", o.Regions, o.Percent)
	case driver.Nil(o.Store):
		return errors.New("lease: an own share needs the store of the region")
	}
	return nil
}

// units returns the units of a limit that each region has for itself, and those that the home counts.
func (o *Own) units(limit int64) (region, home int64) {
	percent := int64(o.Percent)
	region = limit/100*percent + limit%100*percent/100
	return region, limit - int64(o.Regions)*region
}

// A divided is a policy in parts.
type divided struct {
	home   *driver.Policy
	region *driver.Policy // nil where a limit has no own part
}

// divide returns the parts of a policy.
func (o *Own) divide(policy *driver.Policy) divided {
	if !leasable(policy) {
		return divided{home: policy}
	}
	home, region := *policy, *policy
	home.Limits, region.Limits = slices.Clone(policy.Limits), slices.Clone(policy.Limits)
	for i := range policy.Limits {
		mine := &region.Limits[i]
		mine.Units, home.Limits[i].Units = o.units(mine.Units)
		mine.Window += mine.Window/ownDrift + 1
		if mine.Units == 0 {
			return divided{home: policy}
		}
	}
	return divided{&home, &region}
}

// parts returns the parts of a policy.
func (s *Store) parts(policy *driver.Policy) divided {
	if s.own == nil {
		return divided{home: policy}
	}
	return s.divided.of(policy, s.own.divide)
}

// ownKey returns the key of the own share of a subject.
func ownKey(key string) string { return key + "\x00own" }

// share decides a call by the home's part of its limits, and by the own share where that does not admit it.
func (s *Store) share(ctx context.Context, req driver.Request) (driver.Answer, error) {
	parts, asked := s.parts(req.Policy), req
	asked.Policy = parts.home
	if most := parts.home.MostUnits(); asked.Cost > most {
		if !req.Partial {
			return driver.Answer{}, fmt.Errorf("%w: a cost of %d units can never fit into what regions share, %d units beside their own shares",
				sash.ErrCostAboveLimit, req.Cost, most)
		}
		asked.Cost = most
	}
	answer, err := s.decide(ctx, asked)
	switch {
	case parts.region == nil || err == nil && (answer.Allowed() || req.Cost == 0):
	case req.Partial || req.Within > 0 || ctx.Err() != nil || errors.Is(err, driver.ErrRejected):
	case req.Cost <= parts.region.MostUnits():
		return s.own.decide(ctx, req, parts.region, answer, err)
	}
	return answer, err
}

// decide decides a call by the own share. The home refused it with an answer, or cause is why it did not answer.
func (o *Own) decide(ctx context.Context, req driver.Request, policy *driver.Policy, home driver.Answer, cause error) (driver.Answer, error) {
	req.Key, req.Policy = ownKey(req.Key), policy
	mine, err := o.Store.Decide(ctx, req)
	switch {
	case err == nil && (cause != nil || mine.Allowed() || mine.Retry() < home.Retry()):
		mine.Source, mine.Cause, mine.Firm = driver.FromOwn, cause, false
		return mine, nil //nolint:nilerr // the answer has the cause
	case cause != nil:
		return driver.Answer{}, fmt.Errorf("%w; the own share: %w", cause, err)
	}
	home.Firm = false // the own share may have room earlier
	return home, nil
}

// chargedBy returns the store that made the charge of a settlement, home or region, and the settlement as it knows it.
func (s *Store) chargedBy(set driver.Settlement) (driver.Passthrough, driver.Settlement) {
	if s.own == nil || set.Source != driver.FromOwn {
		set.Request.Policy = s.behind(set.Request.Policy)
		return s.Passthrough, set
	}
	if region := s.parts(set.Request.Policy).region; region != nil {
		set.Request.Policy = region
	}
	set.Request.Key, set.Source = ownKey(set.Request.Key), driver.FromStore
	return driver.Passthrough{Next: s.own.Store}, set
}
