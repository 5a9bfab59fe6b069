package failover

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/internal/window"
)

// A LocalStore decides in this process, as memstore does.
type LocalStore interface {
	sash.MultiStore
	sash.Deduplicator
	sash.Settler
	sash.Resetter
}

// local decides over this process's share of each limit.
type local struct {
	store     LocalStore
	instances func() int
	backlog   backlog

	written, lost, doubtful atomic.Int64 // units

	mu     sync.RWMutex
	shares map[*sash.Policy]*share // guarded by mu: made before, at most mostShares
}

// mostShares bounds the policies whose share is remembered: limits that are brought by a call are new
// policies each time.
const mostShares = 1024

// A share is one process's part of a policy's limits.
type share struct {
	instances int
	units     []int64      // floor(units / instances) of each limit
	least     int64        // the smallest of them
	policy    *sash.Policy // its limits have units, but 1 where that is 0
	forced    *sash.Policy // charges whether or not there is room
	most      int64        // the highest cost for forced
}

func newLocal(store LocalStore, instances func() int) *local {
	if instances == nil {
		instances = func() int { return 1 }
	}
	return &local{
		store:     store,
		instances: instances,
		backlog:   backlog{subjects: make(map[subject]*debt)},
		shares:    make(map[*sash.Policy]*share),
	}
}

// share returns this process's share of a policy's limits.
func (l *local) share(policy *sash.Policy) *share {
	instances := max(0, l.instances())
	l.mu.RLock()
	s := l.shares[policy]
	l.mu.RUnlock()
	if s != nil && s.instances == instances {
		return s
	}
	s = divide(policy, instances)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.shares) >= mostShares {
		clear(l.shares)
	}
	l.shares[policy] = s
	return s
}

func divide(policy *sash.Policy, instances int) *share {
	s := &share{instances: instances, least: sash.MaxUnits, most: sash.MaxUnits}
	limits := append([]sash.Limit(nil), policy.Limits()...)
	for i := range limits {
		units := int64(0)
		if instances > 0 {
			units = limits[i].Units / int64(instances)
		}
		s.units = append(s.units, units)
		s.least = min(s.least, units)
		s.most = min(s.most, limits[i].Units)
		limits[i].Units = max(1, units)
		limits[i].Name = "" // names that are all made of units and windows cannot clash
	}
	opts := sash.Options{Algorithm: policy.Algorithm(), Resolution: policy.Resolution(), CountRefused: policy.CountRefused()}
	s.policy = must(sash.NewPolicy(&opts, limits...))
	s.forced = forced(policy)
	if policy.Algorithm() == sash.GCRA { // which counts in parts of a limit, not in units
		s.forced, s.most = forced(s.policy), max(1, s.least)
	}
	return s
}

// forced returns a policy that charges whether or not there is room.
func forced(policy *sash.Policy) *sash.Policy {
	opts := sash.Options{Algorithm: policy.Algorithm(), Resolution: policy.Resolution(), CountRefused: true}
	return must(sash.NewPolicy(&opts, policy.Limits()...))
}

// must is for policies made of one that was checked, with the same windows and not more units.
func must(policy *sash.Policy, err error) *sash.Policy {
	if err != nil {
		panic("failover: a valid policy became invalid: " + err.Error())
	}
	return policy
}

// mirror charges a request that was admitted elsewhere.
func (l *local) mirror(ctx context.Context, id string, req sash.Request) {
	s := l.share(req.Policy)
	req.Cost, req.Policy = min(req.Cost, s.most), s.forced
	_, _ = l.ask(ctx, id, []sash.Request{req}) // a local store does not fail
}

// decide decides over this process's share. What costs more than that is refused, and may come back when
// the store is asked again.
func (l *local) decide(ctx context.Context, id string, reqs []sash.Request, cause error, again time.Duration) ([]sash.Result, error) {
	shares := make([]*share, len(reqs))
	asked := make([]sash.Request, len(reqs))
	fits := true
	for i, req := range reqs {
		shares[i] = l.share(req.Policy)
		asked[i] = req
		asked[i].Policy = shares[i].policy
		fits = fits && req.Cost <= shares[i].least
	}
	if !fits {
		for i := range asked {
			if reqs[i].Policy.CountRefused() {
				l.mirror(ctx, id, reqs[i])
			}
			asked[i].Cost = 0
		}
		id = "" // a look is not what the call is remembered by
	}
	results, err := l.ask(ctx, id, asked)
	if err != nil {
		return nil, err
	}
	for i := range results {
		results[i] = shares[i].restate(reqs[i], results[i], again)
		results[i].Source, results[i].Cause = sash.FromLocal, cause
	}
	return results, nil
}

func (l *local) ask(ctx context.Context, id string, reqs []sash.Request) ([]sash.Result, error) {
	if len(reqs) > 1 {
		return l.store.DecideAll(ctx, reqs)
	}
	if id != "" {
		res, err := l.store.DecideOnce(ctx, id, reqs[0])
		return []sash.Result{res}, err
	}
	res, err := l.store.Decide(ctx, reqs[0])
	return []sash.Result{res}, err
}

// restate tells the answer to a share as one to the limits that the caller knows.
func (s *share) restate(req sash.Request, res sash.Result, again time.Duration) sash.Result {
	var statuses [sash.MaxLimits]window.Status
	refusals := res.Refusals()
	for i, l := range res.Limits() {
		statuses[i] = window.Status{
			Remaining: min(l.Remaining, s.units[i]),
			Retry:     l.RetryAfter.Microseconds(),
			Release:   l.ReleaseAfter.Microseconds(),
			Reset:     l.ResetAfter.Microseconds(),
		}
		if req.Cost > s.units[i] {
			refusals |= 1 << i
			statuses[i].Retry = again.Microseconds()
		}
	}
	return sash.NewResult(req, res.At.UnixMicro(), refusals, statuses[:len(s.units)])
}
