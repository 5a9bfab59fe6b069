package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// Own is a region's own share: a part of each limit that the region counts in its own store, and the home does not. Regions
// and Percent are the same in all processes of all regions. docs/regions.md says how to change them.
type Own struct {
	// Regions is how many regions share the home. Percent is the part of each limit that each of them has,
	// rounded down to whole units. Together they have less than the limit, and the home has the rest.
	Regions, Percent int
	// Store is the region's own store: the one that holds its leases, or the same with other decorators.
	Store driver.Store
}

const ownDrift = 1024 // own charges count longer by a 1,024th: the region's clock may be faster

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

// A divided is a policy split into the home's part and the region's own part.
type divided struct {
	home   *driver.Policy
	region *driver.Policy // nil where a limit has no own part
}

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

func (s *Store) parts(policy *driver.Policy) divided {
	if s.own == nil {
		return divided{home: policy}
	}
	return s.divided.of(policy, s.own.divide)
}

func ownKey(key string) string { return key + "\x00own" }

// share decides a call under the home's part of its limits, and from the own share if the home does not admit it.
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

// decide decides a call from the own share. Either the home has refused the call with an answer, or cause is why it did not answer.
func (o *Own) decide(ctx context.Context, req driver.Request, policy *driver.Policy, home driver.Answer, cause error) (driver.Answer, error) {
	req.Key, req.Policy = ownKey(req.Key), policy
	mine, err := driver.Decide(ctx, o.Store, req)
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

// A home is what this process knows of the home store. While the home is silent, one request at a time tests it, after growing
// pauses. Other requests would only wait in vain.
type home struct {
	within time.Duration // the longest time to fetch a lease
	way    atomic.Int64  // how long the answer to a fetch takes, in microseconds; 0 before the first
	direct chan struct{} // holds a value for each call that waited for leases in vain, while the home decides it

	mu     sync.Mutex
	silent int       // requests in a row without an answer; guarded by mu, like all fields below
	cause  error     // why the last request had no answer; nil after an answer
	ended  time.Time // when the last request that counts in silent failed
	next   time.Time // when the next request may be sent
}

const (
	firstPause = 250 * time.Millisecond // after a fetch that failed; twice as long after the next
	lastPause  = 4 * time.Second
	leastSlow  = 100 * time.Millisecond // a failure that comes sooner counts as an answer of the home
	mostDirect = 8                      // calls that the home decides at once when leases do not arrive
)

// measure adjusts the way to the time that an answer took. The way rises quickly and falls slowly.
func (h *home) measure(took time.Duration) {
	way, this := h.way.Load(), took.Microseconds()
	switch {
	case way == 0:
		way = this
	case this > way:
		way += (this - way + 1) / 2
	default:
		way -= (way - this) / 8
	}
	h.way.Store(way)
}

// may reports whether a request may be sent to the home. While the home is silent, the next request has to wait until this one has failed.
func (h *home) may() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.silent == 0 {
		return true
	}
	now := time.Now()
	if now.Before(h.next) {
		return false
	}
	h.next = now.Add(h.within)
	return true
}

func (h *home) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent, h.cause = 0, nil
}

// failed records a fetch that failed after some time, and returns the pause before the next fetch. A quick failure is no silence.
func (h *home) failed(cause error, took time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = cause
	if took < max(leastSlow, time.Duration(2*h.way.Load())*time.Microsecond) {
		return firstPause
	}
	now := time.Now()
	if h.silent > 0 && now.Add(-took).Before(h.ended) { // it waited at the same time as a failure that counts already
		return max(h.next.Sub(now), firstPause)
	}
	h.silent++
	h.ended = now
	pause := min(firstPause<<min(h.silent-1, 8), lastPause)
	h.next = now.Add(pause)
	return pause
}

func (h *home) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(time.Until(h.next), firstPause)
}

// down returns the error of a call that is not sent because the home is silent.
func (h *home) down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Errorf("lease: the home store did not answer: %w: %w", sash.ErrUnavailable, cmp.Or(h.cause, errSilent))
}

// slow returns the error of a call that got neither a lease nor a place among the calls that the home decides directly.
func (h *home) slow(longest time.Duration) error {
	return fmt.Errorf("lease: a fetch to the home store takes %v, and leases of %v do not last until callers have them: use a longer lease, "+
		"of at least four trips to the home: %w", time.Duration(h.way.Load())*time.Microsecond, longest, sash.ErrUnavailable)
}
