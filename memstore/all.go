package memstore

import (
	"context"
	"slices"

	"example.com/sash/driver"
)

// DecideAll implements [driver.MultiStore]. The only error is [ErrFull], and then nothing was charged.
func (s *Store) DecideAll(_ context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	defer s.lock(reqs)()
	answers := make([]driver.Answer, len(reqs))
	var room [driver.MaxLimits]driver.Status
	charge := true
	for i, req := range reqs {
		statuses := room[:len(req.Policy.Limits)]
		hash := s.hash(req.Key)
		sh := s.shard(hash)
		now := sh.clock.now()
		refusals := sh.look(now, hash, req, statuses)
		answers[i] = driver.NewAnswer(now, refusals, statuses)
		charge = charge && refusals == 0
	}
	if !charge && !reqs[0].Policy.CountRefused {
		return answers, nil
	}
	if !s.hold(reqs, answers) {
		return nil, ErrFull
	}
	for i, req := range reqs {
		if req.Cost == 0 {
			continue
		}
		hash := s.hash(req.Key)
		sh, now := s.shard(hash), answers[i].At
		sub := sh.find(hash, req.Key, req.Policy)
		sub.hold(now, &req)
		sub.state.Charge(now, req.Cost, req.Policy.Limits)
		if charge {
			req.Cost = 0
		}
		statuses := room[:len(req.Policy.Limits)]
		refusals := sh.look(now, hash, req, statuses)
		if !charge {
			refusals = answers[i].Refusals
		}
		answers[i] = driver.NewAnswer(now, refusals, statuses)
		sub.deciding = false
		if sub.index < 0 {
			sh.enqueue(sub)
		}
	}
	return answers, nil
}

// hold makes every subject that is going to be charged exist, and stay while there is room made for the others. It
// reports false, and adds none, if one has no place.
func (s *Store) hold(reqs []driver.Request, answers []driver.Answer) bool {
	ok := true
	subjects := make([]*subject, len(reqs))
	for i, req := range reqs {
		if hash := s.hash(req.Key); req.Cost > 0 {
			if subjects[i] = s.shard(hash).find(hash, req.Key, req.Policy); subjects[i] != nil {
				subjects[i].deciding = true
			}
		}
	}
	for i, req := range reqs {
		if hash := s.hash(req.Key); ok && req.Cost > 0 && subjects[i] == nil {
			subjects[i] = s.shard(hash).add(answers[i].At, hash, req)
			ok = subjects[i] != nil
		}
	}
	for _, sub := range subjects {
		if !ok && sub != nil {
			sub.deciding = false
			if sub.index < 0 {
				s.shard(sub.hash).drop(sub)
			}
		}
	}
	return ok
}

// lock locks the shards of all requests, in order, so that two calls cannot deadlock.
func (s *Store) lock(reqs []driver.Request) (unlock func()) {
	shards := make([]int, len(reqs))
	for i, req := range reqs {
		shards[i] = s.index(s.hash(req.Key))
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	for _, i := range shards {
		s.shards[i].mu.Lock()
	}
	return func() {
		for _, i := range shards {
			s.shards[i].mu.Unlock()
		}
	}
}
