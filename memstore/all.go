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
	subjects := make([]*subject, len(reqs))
	if !s.hold(subjects, reqs, answers) {
		return nil, ErrFull
	}
	for i, sub := range subjects {
		req := reqs[i]
		if req.Cost == 0 {
			continue
		}
		sh, now := s.shard(sub.hash), answers[i].At
		sub.hold(now, &req)
		sub.state.Charge(now, req.Cost, req.Policy.Limits)
		if charge {
			req.Cost = 0
		}
		statuses := room[:len(req.Policy.Limits)]
		refusals := sh.look(now, sub.hash, req, statuses)
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

// hold fills in the subjects that are going to be charged, each of which exists then, and stays while there is room made
// for the others. It reports false, and adds none, if one has no place.
func (s *Store) hold(subjects []*subject, reqs []driver.Request, answers []driver.Answer) bool {
	for i, req := range reqs {
		if hash := s.hash(req.Key); req.Cost > 0 {
			if subjects[i] = s.shard(hash).find(hash, req.Key, req.Policy); subjects[i] != nil {
				subjects[i].deciding = true
			}
		}
	}
	for i, req := range reqs {
		if req.Cost == 0 || subjects[i] != nil {
			continue
		}
		hash := s.hash(req.Key)
		if subjects[i] = s.shard(hash).add(answers[i].At, hash, req); subjects[i] == nil {
			s.release(subjects)
			return false
		}
	}
	return true
}

// release undoes hold.
func (s *Store) release(subjects []*subject) {
	for _, sub := range subjects {
		if sub == nil {
			continue
		}
		if sub.deciding = false; sub.index < 0 {
			s.shard(sub.hash).drop(sub)
		}
	}
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
