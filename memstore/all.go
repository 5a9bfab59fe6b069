package memstore

import (
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// decideAll is DecideAll without blocks. The caller holds the locks.
func (s *Store) decideAll(reqs []driver.Request) ([]driver.Answer, error) {
	answers := make([]driver.Answer, len(reqs))
	var room [driver.MaxLimits]driver.Status
	charge := true
	for i, req := range reqs {
		statuses := room[:len(req.Policy.Limits)]
		hash := s.hash(req.Key)
		sh := s.shard(hash)
		now := sh.clock.now()
		refusals := sh.look(now, hash, &req, statuses)
		answers[i] = driver.NewAnswer(now, refusals, statuses)
		charge = charge && refusals == 0
	}
	var at int64
	books := slices.ContainsFunc(reqs, func(req driver.Request) bool { return booked(&req) })
	if books || !charge && !reqs[0].Policy.CountRefused {
		var from int64
		var ahead bool
		at, from, ahead = s.behind(reqs, answers)
		switch {
		case !books:
			if ahead {
				wait(answers, at)
			}
			return answers, nil
		case charge && !ahead:
			books = false
		case s.refuseAll(reqs, answers, from):
			return answers, nil
		}
	}
	subjects := make([]*subject, len(reqs))
	if !s.hold(subjects, reqs, answers) {
		return nil, ErrFull
	}
	for i, sub := range subjects {
		if reqs[i].Cost == 0 {
			continue
		}
		if books {
			s.shard(sub.hash).book(sub, &reqs[i], at, &answers[i])
		} else {
			s.shard(sub.hash).charge(sub, &reqs[i], charge, &answers[i])
		}
		sub.deciding = false
		if sub.index < 0 {
			s.shard(sub.hash).enqueue(sub)
		}
	}
	return answers, nil
}

// charge charges a request at the instant of its answer, and sets the answer to what is left then.
func (sh *shard) charge(sub *subject, req *driver.Request, admitted bool, answer *driver.Answer) {
	now, limits := answer.At, req.Policy.Limits
	sub.hold(now, now, req)
	sub.state.Charge(now, req.Cost, limits)
	statuses := sh.statuses[:len(limits)]
	if admitted {
		window.Left(sub.state, now, limits, statuses)
		sh.note(now, sub, limits, 0, statuses)
	} else {
		sh.note(now, sub, limits, sub.state.Look(now, req.Cost, limits, statuses), statuses)
	}
	answer.Set(now, answer.Refusals, statuses)
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
		if subjects[i] = s.shard(hash).add(answers[i].At, hash, &req); subjects[i] == nil {
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
