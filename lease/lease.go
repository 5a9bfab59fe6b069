package lease

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"example.com/sash"
)

const (
	shards       = 64          // a power of two
	keysPerShard = 256         // keys whose demand is known; the others are decided by the store, call by call
	shareOfRest  = 8           // a block is at most this part of what is left
	mostWaits    = 3           // for blocks that others use up first; then the store decides the call alone
	fillWithin   = time.Second // how long a block may take to come
	returnWithin = time.Second // how long giving back may take
)

// Bounds of the longest lease.
const (
	MinLease = time.Millisecond
	MaxLease = time.Minute
)

// A Store decides in memory what it can, and asks another store for blocks of units. It is safe for
// concurrent use. It holds the demand of at most 16,384 keys, about 300 bytes each, and a timer for each
// lease.
type Store struct {
	inner    sash.Store
	longest  time.Duration
	start    time.Time // instants are what has passed since: reading the date as well takes twice as long
	seed     maphash.Seed
	policies policies
	shards   [shards]shard
}

var (
	_ sash.Decorator    = (*Store)(nil)
	_ sash.MultiStore   = (*Store)(nil)
	_ sash.Deduplicator = (*Store)(nil)
	_ sash.Settler      = (*Store)(nil)
	_ sash.Resetter     = (*Store)(nil)
)

// New returns a store that leases units from inner, which it does not own, for at most longest: whole
// microseconds, MinLease to MaxLease. A store of failover cannot be inner: it belongs before this one. All processes have to use the same. The longer it is, the fewer
// decisions reach inner and the more units lie unspent: a hundredth of the shortest window is a good start.
func New(inner sash.Store, longest time.Duration) (*Store, error) {
	if longest < MinLease || longest > MaxLease || longest%time.Microsecond != 0 {
		return nil, fmt.Errorf("lease: the longest lease is whole microseconds from %v to %v, not %v", MinLease, MaxLease, longest)
	}
	if sash.Substituted(inner) {
		return nil, errors.New("lease: the store behind it answers by policy when its own store fails, and a block of such units is not leased: " +
			"put failover before lease, not behind it")
	}
	s := &Store{inner: inner, longest: longest, start: time.Now(), seed: maphash.MakeSeed()}
	s.policies.longer = make(map[*sash.Policy]*sash.Policy)
	for i := range s.shards {
		s.shards[i].store = s
		s.shards[i].subjects = make(map[string]*subject)
	}
	return s, nil
}

func (s *Store) shard(key string) *shard {
	return &s.shards[maphash.String(s.seed, key)&(shards-1)]
}

// now returns the instant, since the start.
func (s *Store) now() time.Duration { return time.Since(s.start) }

// Decide implements [sash.Store]. An admission out of a lease has the source [sash.FromLease]; its At is the
// instant at which the lease was charged.
func (s *Store) Decide(ctx context.Context, req sash.Request) (res sash.Result, _ error) {
	if !leasable(req.Policy) {
		return s.inner.Decide(ctx, req)
	}
	if req.Cost == 0 {
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
				return sash.Result{}, ctx.Err()
			}
		default:
			return s.exact(ctx, sh, req)
		}
	}
}

// ask asks the store under the longer windows.
func (s *Store) ask(ctx context.Context, req sash.Request) (sash.Result, error) {
	longer, err := s.policies.of(req.Policy, s.longest)
	if err != nil {
		return sash.Result{}, err
	}
	asked := req
	asked.Policy = longer
	res, err := s.inner.Decide(ctx, asked)
	if err != nil {
		return sash.Result{}, err
	}
	return res.Part(req, 0), nil
}

// exact lets the store decide the call alone.
func (s *Store) exact(ctx context.Context, sh *shard, req sash.Request) (sash.Result, error) {
	res, err := s.ask(ctx, req)
	if err == nil {
		sh.saw(req, res)
	}
	return res, err
}

// fill asks for a block, also when the caller who needed it has gone: others can spend it, and what is
// charged should not be lost.
func (s *Store) fill(ctx context.Context, sh *shard, req sash.Request, block int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fillWithin)
	defer cancel()
	var res sash.Result
	err := errors.New("lease: the store panicked") // unless it answers
	sent := s.now()
	defer func() {
		_ = recover() // the calls that wait ask the store themselves
		sh.filled(req, res, err, block, sent)
	}()
	whole := req
	whole.Cost, whole.MaySettle = block, true
	res, err = s.ask(ctx, whole)
}

// Release gives back what all leases have left, at once: for a process that ends. Calls that come later get
// new leases. The error says how many leases could not be given back; their units stay charged until they
// leave the window.
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

// Unwrap implements [sash.Decorator].
func (s *Store) Unwrap() sash.Store { return s.inner }

// DecideOnce implements [sash.Deduplicator]: the store decides, under the longer windows. A lease is not spent, because
// it could not tell whether a call is repeated. The error is [sash.ErrUnsupported] when the store does not know
// IDs.
func (s *Store) DecideOnce(ctx context.Context, id string, req sash.Request) (sash.Result, error) {
	inner, ok := s.inner.(sash.Deduplicator)
	if !ok {
		return sash.Result{}, sash.ErrUnsupported
	}
	if !leasable(req.Policy) {
		return inner.DecideOnce(ctx, id, req)
	}
	longer, err := s.policies.of(req.Policy, s.longest)
	if err != nil {
		return sash.Result{}, err
	}
	asked := req
	asked.Policy = longer
	res, err := inner.DecideOnce(ctx, id, asked)
	if err != nil {
		return sash.Result{}, err
	}
	return res.Part(req, 0), nil
}

// DecideAll implements [sash.MultiStore]: the store decides, under the longer windows.
func (s *Store) DecideAll(ctx context.Context, reqs []sash.Request) ([]sash.Result, error) {
	inner, ok := s.inner.(sash.MultiStore)
	if !ok {
		return nil, sash.ErrApart
	}
	asked := make([]sash.Request, len(reqs))
	for i, req := range reqs {
		asked[i] = req
		if !leasable(req.Policy) {
			continue
		}
		longer, err := s.policies.of(req.Policy, s.longest)
		if err != nil {
			return nil, err
		}
		asked[i].Policy = longer
	}
	results, err := inner.DecideAll(ctx, asked)
	if err != nil {
		return nil, err
	}
	for i := range results {
		results[i] = results[i].Part(reqs[i], 0)
	}
	return results, nil
}

// Settle implements [sash.Settler]. A call that was admitted out of a lease has its units corrected in the
// lease's charge. The error is [sash.ErrUnsupported] when the store does not settle.
func (s *Store) Settle(ctx context.Context, set sash.Settlement) error {
	inner, ok := s.inner.(sash.Settler)
	if !ok {
		return sash.ErrUnsupported
	}
	if leasable(set.Request.Policy) {
		longer, err := s.policies.of(set.Request.Policy, s.longest)
		if err != nil {
			return err
		}
		set.Request.Policy = longer
	}
	return inner.Settle(ctx, set)
}

// Reset implements [sash.Resetter]. This process's lease ends with it; other processes can spend theirs
// until those end. The error is [sash.ErrUnsupported] when the store does not reset.
func (s *Store) Reset(ctx context.Context, key string, policy *sash.Policy) error {
	inner, ok := s.inner.(sash.Resetter)
	if !ok {
		return sash.ErrUnsupported
	}
	// What is charged before the reset must not be spent after it, and what is on its way may be either.
	s.shard(key).forget(key)
	defer s.shard(key).forget(key)
	return inner.Reset(ctx, key, policy)
}

// leasable reports whether units of a policy can be spent later than they are charged.
func leasable(policy *sash.Policy) bool {
	if policy.CountRefused() || !policy.Algorithm().Exact() {
		return false
	}
	limits := policy.Limits()
	for i := range limits {
		if limits[i].Period != 0 {
			return false
		}
	}
	return true
}

// policies are the policies with longer windows, by those that they were made from.
type policies struct {
	mu     sync.RWMutex
	longer map[*sash.Policy]*sash.Policy // guarded by mu
}

const mostPolicies = 1024 // callers with limits for each call make new ones all the time

func (p *policies) of(policy *sash.Policy, by time.Duration) (*sash.Policy, error) {
	p.mu.RLock()
	longer := p.longer[policy]
	p.mu.RUnlock()
	if longer != nil {
		return longer, nil
	}
	limits := append([]sash.Limit(nil), policy.Limits()...)
	for i := range limits {
		if limits[i].Name == "" {
			limits[i].Name = limits[i].String()
		}
		limits[i].Window += by
	}
	longer, err := sash.NewPolicy(&sash.Options{Algorithm: policy.Algorithm(), Resolution: policy.Resolution()}, limits...)
	if err != nil {
		return nil, errors.Join(errors.New("lease: windows are longer by a lease"), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.longer) >= mostPolicies {
		clear(p.longer)
	}
	p.longer[policy] = longer
	return longer, nil
}
