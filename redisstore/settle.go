package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// Settle implements [driver.Settler]. The error is [driver.ErrApart] for several under an algorithm that keeps no compact log, and
// on a cluster for keys of different slots.
func (s *Store) Settle(ctx context.Context, all ...driver.Settlement) error {
	script, keys, args := sets[all[0].Request.Policy.Algorithm].settle, make([]string, len(all)), ""
	for i := range all {
		policy, arg := all[i].Request.Policy, packSettlement(&all[i])
		if len(all) > 1 {
			if !compact(policy.Algorithm) {
				return driver.ErrApart
			}
			script, args = logSettleAll, args+string(appendUint(nil, 2, int64(len(arg))))
		}
		keys[i], args = s.Key(all[i].Request.Key, policy), args+arg
	}
	if s.scatters(keys) {
		return driver.ErrApart
	}
	_, err := s.send(ctx, script, keys, args)
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

// Extend implements [driver.Extender], in one script. It waits for replicas only when it brings a booking forward. On a cluster
// the error is [driver.ErrApart] for keys of different slots.
func (s *Store) Extend(ctx context.Context, sets ...driver.Settlement) (int64, error) {
	again, keys := make([]driver.Request, len(sets)), make([]string, len(sets))
	booked := sets[0].Delay > 0
	var arg []byte
	for i, set := range sets {
		policy := set.Request.Policy
		if !compact(policy.Algorithm) {
			return 0, driver.ErrUnsupported
		}
		set.Units, set.ID = 0, ""
		settlement := packSettlement(&set)
		length := int64(len(settlement))
		if again[i] = set.Request; booked {
			length += 1 << 15
			again[i].Within = 0
		} else {
			again[i].Policy = &driver.Policy{
				Algorithm: policy.Algorithm, Resolution: policy.Resolution,
				Limits: []driver.Limit{{Units: driver.MaxUnits, Window: policy.Longest()}},
			}
		}
		keys[i], arg = s.Key(set.Request.Key, policy), append(appendUint(arg, 2, length), settlement...)
	}
	if s.scatters(keys) {
		return 0, driver.ErrApart
	}
	run := s.send
	if booked {
		run = func(ctx context.Context, script *Script, keys []string, arg string) (string, error) {
			return s.run(ctx, again, script, keys, arg)
		}
	}
	reply, err := run(ctx, logExtend, keys, string(arg)+pack(again, false, calendarNow(again)))
	if err != nil || reply == "" {
		return 0, err
	}
	answers := make([]driver.Answer, len(again))
	decided, at, err := unpack(again, reply, answers)
	admitted := decided && !slices.ContainsFunc(answers, func(a driver.Answer) bool { return !a.Allowed() })
	switch {
	case err == nil && booked && !admitted:
		return 0, nil
	case err == nil && !admitted:
		err = fmt.Errorf("redisstore: a charge of %q was given back and not made again", again[0].Key)
	}
	return at, err
}

// beside returns the name of a key of another kind in the slot of a subject's own key, such as "sash:block:{log2:user:42}:".
// Braces in keys or prefixes that are not from sash.Key can make it take a few thousand tries to find it.
func (s *Store) beside(kind, own, end string) string {
	name := s.prefix + kind + ":{" + hashTag(own) + "}:" + end
	for n := 0; slot(name) != slot(own); n++ {
		name = s.prefix + kind + ":{" + strconv.Itoa(n) + "}:" + end
	}
	return name
}

// blockKey returns the name of the key of a subject's block.
func (s *Store) blockKey(own string) string { return s.beside("block", own, own[len(s.prefix):]) }

// coolDownKey returns the name of the key of a subject's cool-down, in the slot of its sliding log.
func (s *Store) coolDownKey(key string) string {
	return s.beside("cooldown", s.Key(key, &driver.Policy{Algorithm: driver.SlidingLog}), key)
}

// packBlock writes what follows the argument of a decision in that of block.lua.
func packBlock(b *driver.Block) string {
	var buf [16]byte
	return string(appendUint(appendUint(appendUint(buf[:0], 2, b.Refusals), 7, b.Window), 7, b.Length))
}

// cutLefts cuts the end of a reply of block.lua off: the time until the block of each subject ends. A reply without an
// answer has none.
func cutLefts(reply string, subjects int) (rest, lefts string) {
	end := len(reply) - 8*subjects
	if end <= 16 || int64(number(reply)) < 0 {
		return reply, ""
	}
	return reply[:end], reply[end:]
}

// bar makes those answers refusals whose subjects are blocked, or that block.lua says refuse while another one is blocked.
func bar(reqs []driver.Request, answers []driver.Answer, lefts string) error {
	for i := 0; len(lefts) >= 8; i, lefts = i+1, lefts[8:] {
		left := number(lefts)
		if left>>52 == 1 {
			left -= 1 << 52
			answers[i].Foresee(reqs[i].Cost)
		}
		if left>>53 != 0 {
			return errors.New("redisstore: a script returned an impossible length of a block")
		}
		if left > 0 {
			answers[i].Bar(int64(left))
		}
	}
	return nil
}

// Blocks implements [driver.Blocker].
func (s *Store) Blocks() {}

// CoolDown implements [driver.Cooler]. A cool-down has a key of its own, in the slot of the subject's sliding
// log. It does not wait for replicas.
func (s *Store) CoolDown(ctx context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	guessed := int64(0)
	if c.Guessed {
		guessed = 1
	}
	arg := appendUint(appendUint(nil, 7, max(0, c.Length)), 1, guessed)
	reply, err := s.send(ctx, coolDown, []string{s.coolDownKey(key)}, string(arg))
	if err != nil || reply == "" {
		return driver.CoolDown{}, err
	}
	if len(reply) != 16 {
		return driver.CoolDown{}, fmt.Errorf("redisstore: a script answered %d bytes where 16 were due", len(reply))
	}
	first := number(reply) // length and guessed
	return driver.CoolDown{Length: int64(first >> 8), Left: int64(number(reply[8:])), Guessed: first&1 != 0}, nil
}

// Instances records on Redis that an instance of a group is alive, and returns how many are, including this one: the
// number that shares each limit while Redis cannot be reached. Each instance calls it with an ID of its own, such as
// a host name and a process ID, a few times in each ttl. An instance that does not call for a ttl is no longer counted.
// The ttl is at least a millisecond, and is truncated to whole milliseconds.
//
// The count is too low after Redis has lost its state, or its clock has jumped forward, until every instance has called
// again: a caller that must not admit too much keeps the highest count of the last ttl. It is too high for a while after
// the clock went back. Errors are [sash.ErrInvalidKey] for a group or
// ID that is empty or longer than driver.MaxKeyLength, [sash.ErrInvalidLimit] for a ttl, and those of the client.
func (s *Store) Instances(ctx context.Context, group, id string, ttl time.Duration) (int, error) {
	for _, name := range [...]string{group, id} {
		if name == "" || len(name) > driver.MaxKeyLength {
			return 0, fmt.Errorf("%w: a group or an instance is called by 1 to %d bytes, not %d", sash.ErrInvalidKey, driver.MaxKeyLength, len(name))
		}
	}
	if ttl < time.Millisecond {
		return 0, fmt.Errorf("%w: an instance counts for at least a millisecond, not %v", sash.ErrInvalidLimit, ttl)
	}
	arg := string(appendUint(nil, 7, ttl.Milliseconds())) + id
	reply, err := s.send(ctx, instances, []string{s.prefix + "instances:" + group}, arg)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(reply)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("redisstore: %.40q is not a number of instances", reply)
	}
	return n, nil
}
