package lease

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

const (
	shards       = 64          // a power of two
	keysPerShard = 256         // keys whose demand is known; the store decides calls of other keys one by one
	shareOfRest  = 8           // a block is at most this part of what is left
	mostWaits    = 3           // for blocks that others use up; then the store decides the call alone
	fillWithin   = time.Second // the longest time to fetch a block
	returnWithin = time.Second // the longest time to give units back
)

// Bounds of the longest lease.
const (
	MinLease = time.Millisecond
	MaxLease = time.Minute
)

// A Store decides in memory over units that it leases from another store. It is safe for concurrent use. It holds the
// demand of at most 16,384 keys, about 300 bytes each, and a timer for each lease.
type Store struct {
	driver.Passthrough
	longest  time.Duration
	start    time.Time // instants are durations since then: reading the wall clock too takes twice as long
	seed     maphash.Seed
	policies policies
	shards   [shards]shard
}

// New returns a store that leases units from next, which it does not own, for at most longest: whole
// microseconds, MinLease to MaxLease, the same in all processes. The longer it is, the fewer decisions reach
// next and the more units lie unspent: a hundredth of the shortest window is a good start. A store of failover
// cannot be next: it belongs before this one. The error says what is wrong.
// New panics if next is nil.
func New(next driver.Store, longest time.Duration) (*Store, error) {
	if next == nil {
		panic("lease: New needs a store to lease from, such as memstore.New(nil)")
	}
	if longest < MinLease || longest > MaxLease || longest%time.Microsecond != 0 {
		return nil, fmt.Errorf("lease: the longest lease is whole microseconds from %v to %v, not %v", MinLease, MaxLease, longest)
	}
	if driver.Substituted(next) {
		return nil, errors.New("lease: the store behind it answers by policy when its own store fails, and a block of such units is not leased: " +
			"put failover before lease, not behind it")
	}
	s := &Store{Passthrough: driver.Passthrough{Next: next}, longest: longest, start: time.Now(), seed: maphash.MakeSeed()}
	s.policies.longer = make(map[*driver.Policy]*driver.Policy)
	for i := range s.shards {
		s.shards[i].store = s
		s.shards[i].subjects = make(map[string]*subject)
	}
	return s, nil
}

func (s *Store) shard(key string) *shard {
	return &s.shards[maphash.String(s.seed, key)&(shards-1)]
}

// now returns the time since the start.
func (s *Store) now() time.Duration { return time.Since(s.start) }

// Decide implements [driver.Store]. An admission from a lease has the source [driver.FromLease], and its At is when the
// lease was charged.
func (s *Store) Decide(ctx context.Context, req driver.Request) (res driver.Answer, _ error) {
	if !leasable(req.Policy) {
		return s.Next.Decide(ctx, req)
	}
	if req.Cost == 0 || req.Partial || req.Within > 0 { // a booking goes behind others, which a lease does not know
		return s.ask(ctx, req)
	}
	sh := s.shard(req.Key)
	for waited := 0; ; waited++ {
		step := sh.spend(req, waited, &res)
		switch {
		case step.spent:
			return res, nil
		case step.wait != nil:
			if step.block > 0 {
				go s.fill(ctx, sh, req, step.block)
			}
			select {
			case <-step.wait:
			case <-ctx.Done():
				return driver.Answer{}, ctx.Err()
			}
		default:
			return s.exact(ctx, sh, req)
		}
	}
}

// ask lets the store decide under the longer windows.
func (s *Store) ask(ctx context.Context, req driver.Request) (driver.Answer, error) {
	longer, err := s.policies.of(req.Policy, s.longest)
	if err != nil {
		return driver.Answer{}, err
	}
	req.Policy = longer
	return s.Next.Decide(ctx, req)
}

// exact lets the store decide the call alone.
func (s *Store) exact(ctx context.Context, sh *shard, req driver.Request) (driver.Answer, error) {
	res, err := s.ask(ctx, req)
	if err == nil {
		sh.saw(req, res)
	}
	return res, err
}

// fill fetches a block, even if the caller that needed it has left: others can spend it, and its charge is not lost.
func (s *Store) fill(ctx context.Context, sh *shard, req driver.Request, block int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fillWithin)
	defer cancel()
	var res driver.Answer
	err := errors.New("lease: the store panicked") // unless it answers
	sent := s.now()
	defer func() {
		_ = recover() // waiting calls go to the store themselves
		sh.filled(req, res, err, block, sent)
	}()
	whole := req
	whole.Cost, whole.MaySettle = block, true
	if res, err = s.ask(ctx, whole); err == nil {
		err = res.Check(req.Policy)
	}
}

// Release gives back the rest of all leases at once, for a process that shuts down. Later calls get new leases. The
// error says how many leases could not be given back; their units stay charged until they leave the window.
func (s *Store) Release(ctx context.Context) error {
	failed := 0
	for i := range s.shards {
		for _, rest := range s.shards[i].endAll() {
			if s.Settle(ctx, rest) != nil {
				failed++
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("lease: %d leases could not be given back: %w", failed, sash.ErrUnavailable)
	}
	return nil
}

// DecideOnce implements [driver.Deduplicator]. The store decides, under the longer windows: a lease does not know which
// calls are repeated. The error is [driver.ErrUnsupported] if the store does not support IDs.
func (s *Store) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	var err error
	if req.Policy, err = s.longer(req.Policy); err != nil {
		return driver.Answer{}, err
	}
	return s.Passthrough.DecideOnce(ctx, id, req)
}

// DecideAll implements [driver.MultiStore]. The store decides, under the longer windows.
func (s *Store) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	reqs, err := s.allLonger(reqs)
	if err != nil {
		return nil, err
	}
	return s.Passthrough.DecideAll(ctx, reqs)
}

// DecideEach implements [driver.Batcher]. The store decides, under the longer windows.
func (s *Store) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	reqs, err := s.allLonger(reqs)
	if err != nil {
		return nil, err
	}
	return s.Passthrough.DecideEach(ctx, reqs)
}

// Settle implements [driver.Settler]. For a call that was admitted from a lease it corrects the lease's charge. The error
// is [driver.ErrUnsupported] if the store does not settle.
func (s *Store) Settle(ctx context.Context, set driver.Settlement) error {
	var err error
	if set.Request.Policy, err = s.longer(set.Request.Policy); err != nil {
		return err
	}
	return s.Passthrough.Settle(ctx, set)
}

// Reward implements [driver.Taker]: under the longer windows. It may take units of a lease, which are then spent although
// they were given back. The error is [driver.ErrUnsupported] if the store does not give units back.
func (s *Store) Reward(ctx context.Context, req driver.Request) (driver.Answer, error) {
	var err error
	if req.Policy, err = s.longer(req.Policy); err != nil {
		return driver.Answer{}, err
	}
	return s.Passthrough.Reward(ctx, req)
}

// Extend implements [driver.Extender], under the longer windows. The error is [driver.ErrUnsupported] if the store does not
// extend.
func (s *Store) Extend(ctx context.Context, set driver.Settlement) (int64, error) {
	var err error
	if set.Request.Policy, err = s.longer(set.Request.Policy); err != nil {
		return 0, err
	}
	return s.Passthrough.Extend(ctx, set)
}

// Hand implements [driver.Hander], under the longer windows. The error is [driver.ErrUnsupported] if the store does not hand
// over.
func (s *Store) Hand(ctx context.Context, req driver.Request, line driver.Line) (driver.Answer, error) {
	var err error
	if req.Policy, err = s.longer(req.Policy); err != nil {
		return driver.Answer{}, err
	}
	return s.Passthrough.Hand(ctx, req, line)
}

// Reset implements [driver.Resetter]. It ends this process's lease; other processes can spend theirs until those end. The
// error is [driver.ErrUnsupported] if the store does not reset.
func (s *Store) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	// Units that were charged before the reset must not be spent after it. A block in flight may be either.
	s.shard(key).forget(key)
	defer s.shard(key).forget(key)
	return s.Passthrough.Reset(ctx, key, policy)
}

// longer returns the policy for the store behind: with longer windows if its units can be leased.
func (s *Store) longer(policy *driver.Policy) (*driver.Policy, error) {
	if !leasable(policy) {
		return policy, nil
	}
	return s.policies.of(policy, s.longest)
}

// allLonger returns the requests for the store behind.
func (s *Store) allLonger(reqs []driver.Request) ([]driver.Request, error) {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		var err error
		if reqs[i].Policy, err = s.longer(reqs[i].Policy); err != nil {
			return nil, err
		}
	}
	return reqs, nil
}

// leasable reports whether units of a policy can be spent later than they are charged.
func leasable(policy *driver.Policy) bool {
	if policy.CountRefused || policy.Block.Refusals > 0 || !policy.Algorithm.Exact() {
		return false
	}
	limits := policy.Limits
	for i := range limits {
		if limits[i].Period != 0 {
			return false
		}
	}
	return true
}

// policies are the policies with longer windows, by the original policy.
type policies struct {
	mu     sync.RWMutex
	longer map[*driver.Policy]*driver.Policy // guarded by mu
}

const mostPolicies = 1024 // a call with limits of its own has a new policy each time

func (p *policies) of(policy *driver.Policy, by time.Duration) (*driver.Policy, error) {
	p.mu.RLock()
	longer := p.longer[policy]
	p.mu.RUnlock()
	if longer != nil {
		return longer, nil
	}
	copied := *policy
	copied.Limits = slices.Clone(policy.Limits)
	for i := range copied.Limits {
		l := &copied.Limits[i]
		l.Window += by.Microseconds()
		if n := copied.Entries(l); n > driver.MaxEntries {
			return nil, fmt.Errorf("lease: windows are longer by a lease of %v, and the log of one subject could need %d entries, more than %d: "+
				"use a coarser resolution or a shorter lease", by, n, driver.MaxEntries)
		}
	}
	longer = &copied
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.longer) >= mostPolicies {
		clear(p.longer)
	}
	p.longer[policy] = longer
	return longer, nil
}
