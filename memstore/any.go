package memstore

import (
	"context"

	"example.com/sash/driver"
)

// DecideAny implements [driver.Chooser]. The only error is [ErrFull], and then nothing was charged.
func (s *Store) DecideAny(_ context.Context, reqs []driver.Request) (chosen int, answer driver.Answer, _ error) {
	if reqs[0].Policy.Block.Refusals > 0 {
		return 0, driver.Answer{}, driver.ErrApart // each counts its refusals
	}
	defer s.lock(reqs)()
	chosen = s.choose(reqs)
	hash := s.hash(reqs[chosen].Key)
	sh := s.shard(hash)
	if !sh.decide(sh.clock.now(), hash, &reqs[chosen], &answer) {
		return chosen, driver.Answer{}, ErrFull
	}
	return chosen, answer, nil
}

// choose returns the request that is decided. The caller holds the locks of all.
func (s *Store) choose(reqs []driver.Request) int {
	best, most := -1, 0.0
	soonest, shortest := 0, int64(0)
	for i := range reqs {
		room, wait := s.find(&reqs[i])
		switch {
		case wait == 0 && (best < 0 || room > most):
			best, most = i, room
		case i == 0 || wait < shortest:
			soonest, shortest = i, wait
		}
		if best >= 0 && (i+1)%driver.ChoiceGroup == 0 {
			break
		}
	}
	if best >= 0 {
		return best
	}
	return soonest
}

// find returns the room that a request would leave, and how long it waits: until it fits, or until it can be booked.
func (s *Store) find(req *driver.Request) (room float64, wait int64) {
	var statuses [driver.MaxLimits]driver.Status
	look := statuses[:len(req.Policy.Limits)]
	hash := s.hash(req.Key)
	sh := s.shard(hash)
	now := sh.clock.now()
	refusals := sh.look(now, hash, req, look)
	if booked(req) {
		log := s.log(req)
		if until := log.Until(now); refusals != 0 || until > 0 {
			return 0, log.Behind(max(until, now), req.Cost, req.Policy.Limits) - now
		}
	}
	for i := range look {
		if refusals&(1<<i) != 0 {
			wait = max(wait, look[i].Retry)
		}
	}
	return driver.Room(req, look), wait
}
