package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// Own is the own share of a region: a fixed part of every limit that it can spend while it is cut off from the home. All
// regions have the same Regions and Percent, and all processes of a region the same Own.
type Own struct {
	// Region is the name of the region: 1 to 64 letters, digits, dots, dashes and underscores.
	Region string
	// Regions is how many regions share the home, at most 64, and Percent the part of each limit that each of them has for
	// itself, rounded down to whole units. Together they have less than the limit; what they leave is the home's.
	Regions, Percent int
	// Store is the region's own store, which decides on the own share: the one that holds its leases, or the same with other
	// decorators. It and the home are a [driver.Swapper] each. It records what was agreed on with one home: with several
	// homes, a region has own shares of the limits of one of them.
	Store driver.Store
}

const mostRegions = 64

// check returns what is wrong with terms.
func (t terms) check() error {
	if t.regions < 1 || t.regions > mostRegions || t.percent < 1 || t.regions*t.percent >= 100 {
		return fmt.Errorf("lease: %d regions cannot have %d %% of each limit for each: give 1 to %d regions, and a percentage that leaves the home a part",
			t.regions, t.percent, mostRegions)
	}
	return nil
}

// How long an own share lasts, and how often a region is connected.
const (
	ownLasts   = 24 * time.Hour // after the region was last connected; no window is longer
	ownRefresh = time.Minute
	ownRetry   = 2 * time.Second // after the home did not answer
	ownDrift   = 1024            // the home counts longer by this part: clocks of regions may be slower
)

// own is the own share of a region in this process.
type own struct {
	terms
	region  string
	store   driver.Store // decides on the own share
	near    driver.Swapper
	home    driver.Swapper
	lasts   time.Duration // the own share, without a word of the home; this and the next two are smaller in tests
	keeps   time.Duration // the home keeps the region for so long: until the own share has ended and its charges have left
	refresh time.Duration
	within  time.Duration // the longest time of the home for a lease

	joining chan struct{} // has one place: of the one that talks with the home

	mu      sync.Mutex
	inForce terms     // at home; guarded by mu, as all below
	until   time.Time // until when they are
	why     error     // there is no own share
	next    time.Time // when to talk with the home again
	asked   time.Time // when that was last done
	cause   error     // why that failed
	divided map[*driver.Policy]*divided
}

func newOwn(o *Own, home driver.Store, within time.Duration) (*own, error) {
	t := terms{int64(o.Regions), int64(o.Percent)}
	if err := t.check(); err != nil {
		return nil, err
	}
	if !named(o.Region) {
		return nil, fmt.Errorf("lease: %q is no name of a region: use 1 to 64 letters, digits, dots, dashes and underscores", o.Region)
	}
	if o.Store == nil {
		return nil, errors.New("lease: an own share needs the store of the region")
	}
	near, ok := driver.As[driver.Swapper](o.Store)
	far, also := driver.As[driver.Swapper](home)
	if !ok || !also {
		return nil, errors.New("lease: an own share needs a home and a store of the region that keep texts, such as those of memstore and redisstore")
	}
	return &own{
		terms: t, region: o.Region, store: o.Store, near: near, home: far, lasts: ownLasts, keeps: 2 * ownLasts, refresh: ownRefresh, within: within,
		joining: make(chan struct{}, 1), why: errNoAgreement, divided: make(map[*driver.Policy]*divided),
	}, nil
}

func named(name string) bool {
	for _, r := range name {
		if r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 64
}

// A divided is a policy in parts.
type divided struct {
	common *driver.Policy // the home's
	own    *driver.Policy // the region's; nil where a limit has no own part
}

// divide returns the parts of a policy under terms. A policy without an own part is the home's as it is.
func (o *own) divide(policy *driver.Policy, under terms) *divided {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := o.divided[policy]; d != nil && under == o.inForce {
		return d
	}
	d := under.divide(policy, o.lasts)
	if under == o.inForce {
		if len(o.divided) >= mostPolicies {
			clear(o.divided)
		}
		o.divided[policy] = d
	}
	return d
}

// divide returns the parts of a policy. Own charges are kept a 1,024th longer, by which the clock of a region may be faster.
func (t terms) divide(policy *driver.Policy, lasts time.Duration) *divided {
	if !leasable(policy) {
		return &divided{common: policy}
	}
	common, mine := *policy, *policy
	common.Limits, mine.Limits = slices.Clone(policy.Limits), slices.Clone(policy.Limits)
	for i := range policy.Limits {
		l := policy.Limits[i]
		units := l.Units/100*t.percent + l.Units%100*t.percent/100
		if units == 0 || l.Window > lasts.Microseconds() {
			return &divided{common: policy}
		}
		common.Limits[i].Units -= t.regions * units
		mine.Limits[i].Units = units
		mine.Limits[i].Window += l.Window/ownDrift + 1
	}
	return &divided{common: &common, own: &mine}
}

// ownKey returns the key of the own share of a subject.
func ownKey(key string) string { return key + "\x00own" }

// share decides a call by the home's part of its limits, and by the own share where that does not admit it.
func (s *Store) share(ctx context.Context, req driver.Request) (driver.Answer, error) {
	under, err := s.own.known(ctx)
	if err != nil {
		return driver.Answer{}, err
	}
	parts, asked := s.own.divide(req.Policy, under), req
	asked.Policy = parts.common
	if most := parts.common.MostUnits(); asked.Cost > most {
		if !req.Partial {
			return driver.Answer{}, fmt.Errorf("%w: a cost of %d units can never fit into what regions share, %d units beside their own shares",
				sash.ErrCostAboveLimit, req.Cost, most)
		}
		asked.Cost = most
	}
	answer, err := s.decide(ctx, asked)
	switch {
	case parts.own == nil || err == nil && (answer.Allowed() || req.Cost == 0):
	case req.Partial || req.Within > 0 || ctx.Err() != nil || errors.Is(err, driver.ErrRejected):
	case req.Cost <= parts.own.MostUnits():
		return s.own.decide(ctx, req, parts.own, answer, err)
	}
	return answer, err
}

// decide decides a call by the own share. The home refused it with an answer, or cause is why it did not answer.
func (o *own) decide(ctx context.Context, req driver.Request, policy *driver.Policy, home driver.Answer, cause error) (driver.Answer, error) {
	mine, err := o.spend(ctx, req, policy)
	switch {
	case err == nil && (cause != nil || mine.Allowed() || mine.Retry() < home.Retry()):
		mine.Source, mine.Cause, mine.Firm = driver.FromOwn, cause, false
		return mine, nil //nolint:nilerr // the answer has the cause
	case cause != nil:
		return driver.Answer{}, fmt.Errorf("%w; the region has no own share: %w", cause, err)
	}
	home.Firm = false // the own share may have room earlier
	return home, nil
}

// spend asks the region's store. What it admits counts if the store still has the record of the agreement: then it has
// lost no charges.
func (o *own) spend(ctx context.Context, req driver.Request, policy *driver.Policy) (driver.Answer, error) {
	if err := o.missing(); err != nil {
		return driver.Answer{}, err
	}
	req.Key, req.Policy = ownKey(req.Key), policy
	mine, err := o.store.Decide(ctx, req)
	if err != nil || !mine.Allowed() || req.Cost == 0 {
		return mine, err
	}
	is, err := o.look(ctx)
	if err == nil && !is.holds(o.terms) {
		err = errNoAgreement
		o.learn(terms{}, time.Time{}, err)
	}
	return mine, err
}

// settle corrects a charge of the own share.
func (o *own) settle(ctx context.Context, set driver.Settlement) error {
	store, ok := o.store.(driver.Settler)
	if !ok {
		return driver.ErrUnsupported
	}
	return store.Settle(ctx, o.here(set))
}

// extend extends a charge of the own share.
func (o *own) extend(ctx context.Context, set driver.Settlement) (int64, error) {
	store, ok := o.store.(driver.Extender)
	if !ok {
		return 0, driver.ErrUnsupported
	}
	return store.Extend(ctx, o.here(set))
}

// here returns a settlement as the region's store knows it.
func (o *own) here(set driver.Settlement) driver.Settlement {
	if d := o.terms.divide(set.Request.Policy, o.lasts); d.own != nil {
		set.Request.Policy = d.own
	}
	set.Request.Key, set.Source = ownKey(set.Request.Key), driver.FromStore
	return set
}

// reset forgets what was spent of the own share.
func (o *own) reset(ctx context.Context, key string, policy *driver.Policy) error {
	store, ok := o.store.(driver.Resetter)
	if !ok {
		return driver.ErrUnsupported
	}
	return store.Reset(ctx, ownKey(key), policy)
}

var errNoAgreement = fmt.Errorf("lease: the region has not been connected with the home since its store began: %w", sash.ErrUnavailable)
