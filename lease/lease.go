package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
	"example.com/sash/memstore"
)

// Bounds of the longest lease.
const (
	MinLease = time.Millisecond
	MaxLease = time.Minute
)

// A Store decides calls near the caller, from units that it leases from a home store. It is safe for concurrent use.
type Store struct {
	driver.Passthrough
	longest time.Duration
	least   int64 // a limit of fewer units is too small to split
	holder  holder
	home    home
	work    work
	longer  perPolicy[*driver.Policy] // with longer windows
	own     *Own                      // nil is none
	divided perPolicy[divided]        // in the parts of own
}

type (
	// A Holder keeps the leases of Shared. A store of memory or Redis is one.
	Holder = window.Holder
	// A Spending asks a Holder for units.
	Spending = window.Spending
	// Held is the answer of a Holder.
	Held = window.Held
	// A Fetch brings a lease to a Holder.
	Fetch = window.Fetch
)

// Options of Shared. The zero value is the default.
type Options struct {
	// Within is the longest time that a fetch may take. Zero is a second.
	Within time.Duration
	// Own is a part of each limit that the region can spend while it is cut off from the home. Nil is none.
	Own *Own
}

// The fewest units of a limit that can be leased: a lease of a few units saves little.
const (
	leastShared  = 64
	leastPrivate = 16
)

// New returns a store that leases units from next, which it does not own, for at most longest: whole microseconds, MinLease to MaxLease,
// the same in all processes. Longer leases mean that fewer decisions reach next and more units lie unspent: a hundredth of the shortest
// window is a good start. The store holds the leases of at most 16,384 keys, about 500 bytes each. If next does not settle, the rest of a
// lease stays charged until it leaves the window. The error says what is wrong, such as a failover store as next: failover belongs in
// front of this store. So does a denial cache, as in package stack: without one, refused calls that are not leased reach next (go test
// ./stack -run TestRefusedCalls -v). New panics if next is nil.
func New(next driver.Store, longest time.Duration) (*Store, error) {
	return makeStore(next, newPrivate(), longest, leastPrivate, 0)
}

// Shared returns a store that leases units from a home store, which may be far away, for all processes of a region. The processes share a
// holder beside them, such as a [redisstore.Store] on a Redis of the region. Every process of every region uses the same longest lease. A
// nil opts is the default. Shared panics if home or region is nil. Its other errors are those of New.
func Shared(home driver.Store, region Holder, longest time.Duration, opts *Options) (*Store, error) {
	if driver.Nil(region) {
		panic("lease: Shared needs a holder of leases, such as a store on the Redis of the region")
	}
	opts = cmp.Or(opts, &Options{})
	s, err := makeStore(home, region, longest, leastShared, opts.Within)
	if err != nil || opts.Own == nil {
		return s, err
	}
	if err = opts.Own.check(); err != nil {
		return nil, err
	}
	own := *opts.Own
	s.own = &own
	return s, nil
}

func makeStore(next driver.Store, h window.Holder, longest time.Duration, least int64, within time.Duration) (*Store, error) {
	if driver.Nil(next) {
		panic("lease: New needs a store to lease from, such as memstore.New(nil)")
	}
	if longest < MinLease || longest > MaxLease || longest%time.Microsecond != 0 {
		return nil, fmt.Errorf("lease: the longest lease is whole microseconds from %v to %v, not %v", MinLease, MaxLease, longest)
	}
	if next.Powers()&driver.Substitutes != 0 {
		return nil, errors.New("lease: the store behind it answers by policy when its own store fails, and a block of such units is not leased: " +
			"put failover before lease, not behind it")
	}
	s := &Store{Passthrough: driver.Passthrough{Store: next}, longest: longest, least: least, holder: holder{h}}
	s.home.within, s.home.direct = cmp.Or(within, usualWithin), make(chan struct{}, mostDirect)
	s.work = work{most: mostLeases, fetches: make(map[id]*fetch), leases: make(map[fetchName]*lease), doing: make(map[chan struct{}]struct{})}
	return s, nil
}

// Powers implements [driver.Store]. It returns the powers of the home without CanEach: the store carries out one operation at a time.
func (s *Store) Powers() driver.Powers { return s.Store.Powers() &^ driver.CanEach }

// Do implements [driver.Store]. Leases decide calls on one subject: an admission from a lease has the source [driver.FromLease], and its
// At is when the home charged the lease. The home decides everything else, under the longer windows. Settling or extending a call from
// a lease changes the lease's charge. GiveBack may give back units of a lease, and the lease can still be spent. Forget ends the key's
// leases in the region, or with New in this process; other processes can spend theirs until they end.
func (s *Store) Do(ctx context.Context, b *driver.Batch) (err error) {
	op := &b.Ops[0]
	switch {
	case len(b.Ops) > 1 && b.Mode == driver.Each && op.Kind != driver.Settle && op.Kind != driver.Extend:
		for i := range b.Ops {
			b.Ops[i].Err = s.Do(ctx, &driver.Batch{Ops: b.Ops[i : i+1]})
		}
		return nil
	case len(b.Ops) > 1:
		return s.pass(ctx, b)
	case op.Kind == driver.Forget:
		return s.forget(ctx, b)
	case op.Kind != driver.Charge || op.ID != "":
		return s.pass(ctx, b)
	case !leasable(op.Policy):
		return s.Store.Do(ctx, b)
	case s.own != nil:
		op.Answer, err = s.share(ctx, op.Request)
	default:
		op.Answer, err = s.decide(ctx, op.Request)
	}
	b.Chosen = 0
	return err
}

func (s *Store) decide(ctx context.Context, req driver.Request) (answer driver.Answer, err error) {
	tooSmall := func(l driver.Limit) bool { return l.Units < s.least } // to be leased in parts
	// A booking goes behind the other bookings, and a lease does not know these.
	if req.Cost == 0 || req.Partial || req.Within > 0 || slices.ContainsFunc(req.Policy.Limits, tooSmall) {
		return s.guarded(ctx, req)
	}
	name := identify(&req)
	call := window.Spending{Cost: req.Cost, Longest: s.longest.Microseconds(), Way: s.way()}
	var patience patience
	for {
		held, err := s.holder.spend(ctx, name, call)
		if err != nil {
			return driver.Answer{}, err
		}
		call.Again = true
		var out *fetch
		if held.Fetch > 0 {
			out = s.send(ctx, name, req, &held)
		}
		switch {
		case held.Spent || held.Refused > 0:
			if !reads(&held, req.Policy, &answer) {
				return driver.Answer{}, errReply
			}
			return answer, nil
		case held.Down:
			return driver.Answer{}, s.home.down()
		case held.Alone:
			return s.exact(ctx, name, req)
		case patience.over(call.Way, s.home.within):
			patience.places = s.home.direct
		}
		if err := s.work.wait(ctx, name, out, &held, &patience); err != nil {
			return driver.Answer{}, err
		}
		switch {
		case patience.alone:
			return s.exact(ctx, name, req)
		case patience.placed:
			defer func() { <-s.home.direct }()
			return s.exact(ctx, name, req)
		case time.Since(patience.since) > lastPause:
			return driver.Answer{}, s.home.slow(s.longest)
		}
	}
}

var errReply = errors.New("lease: the holder returned a reply that this version did not write: " +
	"processes of one region use one version, or leases under a prefix of their own")

// exact has the home decide the call alone, and reports a refusal to the holder.
func (s *Store) exact(ctx context.Context, name id, req driver.Request) (driver.Answer, error) {
	answer, err := s.guarded(ctx, req)
	if err == nil && answer.Check(req.Policy) == nil && !answer.Allowed() {
		// If that fails, other callers ask the home themselves.
		_, _ = s.holder.bring(ctx, name, window.Fetch{
			Longest: s.longest.Microseconds(), Rest: answer.Remaining(), Reply: encode(&answer),
			Refused: s.standsFor(&answer, req.Policy), RefusedCost: min(req.Cost, answer.Remaining()+1),
		})
	}
	return answer, err
}

// guarded has the home decide, unless the home is silent. With an own share, the home gets no more time than for a fetch.
func (s *Store) guarded(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if !s.home.may() {
		return driver.Answer{}, s.home.down()
	}
	if s.own != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.home.within)
		defer cancel()
	}
	sent := time.Now()
	answer, err := s.ask(ctx, req)
	switch {
	case err == nil || errors.Is(err, driver.ErrRejected):
		s.home.answered()
	default:
		s.home.failed(err, time.Since(sent))
	}
	return answer, err
}

func (s *Store) ask(ctx context.Context, req driver.Request) (driver.Answer, error) {
	req.Policy = s.lengthened(req.Policy)
	b := driver.Batch{Ops: []driver.Op{{Settlement: driver.Settlement{Request: req}}}}
	err := s.Store.Do(ctx, &b)
	return b.Ops[0].Answer, err
}

// Waits implements [driver.Witness]. It returns the longer wait of the home and the holder.
func (s *Store) Waits() time.Duration { return max(waits(s.Store), waits(s.holder.Holder)) }

// waits returns how long a store has waited. A store in memory does not wait; a store that is no Witness may wait for ever.
func waits(store any) time.Duration {
	switch store := store.(type) {
	case *memstore.Store:
		return 0
	case driver.Store:
		if w, ok := driver.Behind[driver.Witness](store); ok {
			return w.Waits()
		}
	case driver.Witness:
		return store.Waits()
	}
	return math.MaxInt64
}

// Silent implements [driver.Witness]. It returns the answer of the home, or else that of the holder.
func (s *Store) Silent(d time.Duration) (said string) {
	if home, ok := driver.Behind[driver.Witness](s.Store); ok {
		said = home.Silent(d)
	}
	if holder, ok := s.holder.Holder.(driver.Witness); ok && said == "" {
		said = holder.Silent(d)
	}
	return said
}

// way returns how long a fetch takes, in microseconds, but at most half of the longest lease: a useful lease lasts at least two fetches.
func (s *Store) way() int64 { return min(s.home.way.Load(), s.longest.Microseconds()/2) }

// pass sends a batch that corrects charges to the store that made them, the home or the region's own, under the limits of that
// store. The error is [driver.ErrApart] if both stores made some.
func (s *Store) pass(ctx context.Context, b *driver.Batch) error {
	store, asked := s.Store, b.Clone()
	for i := range asked.Ops {
		op := &asked.Ops[i]
		if op.Source != b.Ops[0].Source {
			return driver.ErrApart
		}
		policy := op.Policy
		if s.own == nil || op.Source != driver.FromOwn {
			op.Policy = s.behind(policy)
		} else {
			store = s.own.Store
			op.Policy = cmp.Or(s.parts(policy).region, policy)
			op.Key, op.Source = ownKey(op.Key), driver.FromStore
		}
	}
	err := store.Do(ctx, asked)
	b.Take(asked)
	return err
}

func (s *Store) forget(ctx context.Context, b *driver.Batch) error {
	// Units that were charged before the reset must not be spent after it. A lease in flight may be charged before or after.
	req := b.Ops[0].Request
	name := identify(&driver.Request{Key: req.Key, Policy: s.parts(req.Policy).home})
	if err := s.holder.forget(ctx, name); err != nil {
		return err
	}
	if out := s.work.fetch(name); out != nil { // what it charges after the reset would be missing
		select {
		case <-out.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := s.Store.Do(ctx, b)
	if s.own != nil && err == nil {
		req.Key = ownKey(req.Key)
		err = s.own.Store.Do(ctx, &driver.Batch{Ops: []driver.Op{{Kind: driver.Forget, Settlement: driver.Settlement{Request: req}}}})
	}
	return errors.Join(err, s.holder.forget(ctx, name))
}

// behind returns the policy for the store behind: with longer windows if its units can be leased, and without own shares.
func (s *Store) behind(policy *driver.Policy) *driver.Policy {
	if !leasable(policy) {
		return policy
	}
	return s.lengthened(s.parts(policy).home)
}

// leasable reports whether units of a policy can be spent later than they are charged.
func leasable(policy *driver.Policy) bool {
	if policy.CountRefused || policy.Block.Refusals > 0 || !policy.Algorithm.Exact() {
		return false
	}
	return !slices.ContainsFunc(policy.Limits, func(l driver.Limit) bool { return l.Period != 0 })
}

func (s *Store) lengthened(policy *driver.Policy) *driver.Policy {
	return s.longer.of(policy, func(policy *driver.Policy) *driver.Policy {
		longer := *policy
		longer.Limits = slices.Clone(policy.Limits)
		for i := range longer.Limits {
			longer.Limits[i].Window += s.longest.Microseconds()
		}
		return &longer
	})
}

// A perPolicy keeps a value derived from each policy. The zero perPolicy is empty.
type perPolicy[T any] struct {
	mu  sync.RWMutex
	all map[*driver.Policy]T // guarded by mu
}

const mostPolicies = 1024 // a call with limits of its own has a new policy each time

func (p *perPolicy[T]) of(policy *driver.Policy, derive func(*driver.Policy) T) T {
	p.mu.RLock()
	derived, known := p.all[policy]
	p.mu.RUnlock()
	if known {
		return derived
	}
	derived = derive(policy)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= mostPolicies {
		p.all = make(map[*driver.Policy]T)
	}
	p.all[policy] = derived
	return derived
}
