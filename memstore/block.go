package memstore

import (
	"context"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// decide decides a request, and keeps a subject out that is refused too often: then the request costs nothing. It
// reports false if there is no place for a new subject.
func (sh *shard) decide(now int64, hash uint64, req *driver.Request, answer *driver.Answer) (ok bool) {
	if req.Policy.Block.Refusals == 0 {
		return sh.decideOpen(now, hash, req, answer)
	}
	if left := sh.blocked(now, hash, req); left > 0 {
		req.Cost = 0
		ok = sh.decideOpen(now, hash, req, answer)
		answer.Bar(left)
		return ok
	}
	if !sh.decideOpen(now, hash, req, answer) {
		return false
	}
	sh.refuse(now, hash, req, answer)
	return true
}

// blocked returns the time until the block of a request's subject ends, or 0.
func (sh *shard) blocked(now int64, hash uint64, req *driver.Request) int64 {
	sub := sh.find(hash, req.Key, req.Policy)
	if sub == nil || req.Policy.Block.Refusals == 0 {
		return 0
	}
	return sub.block.Left(now)
}

// refuse counts the refusal of a request, if the answer is one.
func (sh *shard) refuse(now int64, hash uint64, req *driver.Request, answer *driver.Answer) {
	by := &req.Policy.Block
	if answer.Allowed() || req.Cost == 0 || by.Refusals == 0 {
		return
	}
	sub := sh.find(hash, req.Key, req.Policy)
	if sub == nil {
		return
	}
	if sub.block == nil {
		sub.block = new(window.Block)
	}
	left := sub.block.Refuse(now, by)
	sub.until = max(sub.until, now+max(left, by.Window))
	if left > 0 {
		answer.Bar(left)
		if now+left > sub.refuses {
			sh.bar(sub, now+left)
		}
	}
}

// DecideAll implements [driver.MultiStore]. The only error is [ErrFull], and then nothing was charged.
func (s *Store) DecideAll(_ context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	defer s.lock(reqs)()
	if reqs[0].Policy.Block.Refusals == 0 {
		return s.decideAll(reqs)
	}
	lefts, looks, out := make([]int64, len(reqs)), make([]driver.Request, len(reqs)), false
	for i := range reqs {
		hash := s.hash(reqs[i].Key)
		sh := s.shard(hash)
		lefts[i] = sh.blocked(sh.clock.now(), hash, &reqs[i])
		looks[i] = reqs[i]
		looks[i].Cost = 0
		out = out || lefts[i] > 0
	}
	if out {
		answers, err := s.decideAll(looks)
		for i := range answers {
			if lefts[i] > 0 {
				answers[i].Bar(lefts[i])
			}
		}
		return answers, err
	}
	answers, err := s.decideAll(reqs)
	for i := range answers {
		hash := s.hash(reqs[i].Key)
		sh := s.shard(hash)
		sh.refuse(sh.clock.now(), hash, &reqs[i], &answers[i])
	}
	return answers, err
}

// Blocks implements [driver.Blocker].
func (s *Store) Blocks() {}
