package redisstore

import (
	"context"
	"fmt"

	"example.com/sash/driver"
)

// Settle implements [driver.Settler].
func (s *Store) Settle(ctx context.Context, set driver.Settlement) error {
	policy := set.Request.Policy
	_, err := s.send(ctx, sets[policy.Algorithm].settle, []string{s.Key(set.Request.Key, policy)}, packSettlement(&set))
	return err
}

// Reset implements [driver.Resetter]. It ends the block of the subject whatever policy began it, by a script of its own
// while the slot of the two moves.
func (s *Store) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	own := s.Key(key, policy)
	keys := []string{own, s.blockKey(own)}
	_, err := s.send(ctx, reset, keys, "")
	if apart(err) {
		if _, err = s.send(ctx, reset, keys[1:], ""); err == nil {
			_, err = s.send(ctx, reset, keys[:1], "")
		}
	}
	return err
}

// Reward implements [driver.Taker]. It takes units from at most 1,000 charges of a log.
func (s *Store) Reward(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if req.Policy.Block.Refusals > 0 { // a reward is no call that is refused
		open := *req.Policy
		open.Block = driver.Block{}
		req.Policy = &open
	}
	return s.decideOne(ctx, req, sets[req.Policy.Algorithm].reward, takeBack)
}

// Extend implements [driver.Extender], in one script. It waits for replicas only when it brings a booking forward.
func (s *Store) Extend(ctx context.Context, set driver.Settlement) (int64, error) {
	policy := set.Request.Policy
	if !compact(policy.Algorithm) {
		return 0, driver.ErrUnsupported
	}
	set.Units, set.ID = 0, ""
	settlement := packSettlement(&set)
	length, again, run := int64(len(settlement)), set.Request, s.send
	if set.Delay > 0 {
		length += 1 << 15
		again.Within = 0
		run = func(ctx context.Context, script *Script, keys []string, arg string) (string, error) {
			return s.run(ctx, []driver.Request{again}, script, keys, arg)
		}
	} else {
		again.Policy = &driver.Policy{
			Algorithm: policy.Algorithm, Resolution: policy.Resolution,
			Limits: []driver.Limit{{Units: driver.MaxUnits, Window: policy.Longest()}},
		}
	}
	arg := string(appendUint(nil, 2, length)) + settlement + pack([]driver.Request{again}, false, calendarNow([]driver.Request{again}))
	reply, err := run(ctx, logExtend, []string{s.Key(again.Key, policy)}, arg)
	if err != nil || reply == "" {
		return 0, err
	}
	var answers [1]driver.Answer
	decided, at, err := unpack([]driver.Request{again}, reply, answers[:])
	switch {
	case err == nil && set.Delay > 0 && (!decided || !answers[0].Allowed()):
		return 0, nil
	case err == nil && !answers[0].Allowed():
		err = fmt.Errorf("redisstore: a charge of %q was given back and not made again", again.Key)
	}
	return at, err
}
