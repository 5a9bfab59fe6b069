package memstore

import (
	"context"

	"example.com/sash/driver"
)

var _ driver.Chooser = (*Store)(nil)

// DecideAny implements [driver.Chooser]. The only error is [ErrFull], and then nothing was charged.
func (s *Store) DecideAny(_ context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	defer s.lock(reqs)()
	chosen := s.choose(reqs)
	req := reqs[chosen]
	hash := s.hash(req.Key)
	sh := s.shard(hash)
	now := sh.clock.now()
	statuses := sh.statuses[:len(req.Policy.Limits)]
	refusals, firm, ok := sh.decide(now, hash, req, statuses)
	if !ok {
		return chosen, driver.Answer{}, ErrFull
	}
	answer := driver.NewAnswer(now, refusals, statuses)
	answer.Firm = firm
	return chosen, answer, nil
}

// choose returns the request that is decided. The caller holds the locks of all.
func (s *Store) choose(reqs []driver.Request) int {
	var room [driver.MaxLimits]driver.Status
	best, most := -1, 0.0
	soonest, shortest := 0, int64(0)
	for i, req := range reqs {
		hash := s.hash(req.Key)
		sh := s.shard(hash)
		statuses := room[:len(req.Policy.Limits)]
		req.Within = 0
		if sh.look(sh.clock.now(), hash, req, statuses) == 0 {
			if left := driver.Room(&req, statuses); best < 0 || left > most {
				best, most = i, left
			}
		} else {
			retry := int64(0)
			for j := range statuses {
				retry = max(retry, statuses[j].Retry)
			}
			if i == 0 || retry < shortest {
				soonest, shortest = i, retry
			}
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
