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
	"example.com/sash/internal/window"
)

// settle corrects charges. The error is [driver.ErrApart] for several charges if the algorithm keeps no compact log, or if
// their keys are in different slots of a cluster.
func (s *Store) settle(ctx context.Context, ops []driver.Op) error {
	script, args := sets[ops[0].Policy.Algorithm].settle, ""
	for i := range ops {
		arg := packSettlement(&ops[i].Settlement)
		if len(ops) > 1 {
			if !compact(ops[i].Policy.Algorithm) {
				return driver.ErrApart
			}
			script, args = logSettleAll, args+string(appendUint(nil, 2, int64(len(arg))))
		}
		args += arg
	}
	keys, err := s.keys(ops)
	if err == nil {
		_, err = s.send(ctx, script, keys, args)
	}
	return err
}

// forget removes the charges under a name, and ends the block of the subject, whatever policy began it. While the slot of the
// two keys moves, it ends the block by a second script.
func (s *Store) forget(ctx context.Context, own string) error {
	keys := []string{own, s.blockKey(own)}
	_, err := s.send(ctx, reset, keys, "")
	if apart(err) {
		if _, err = s.send(ctx, reset, keys[1:], ""); err == nil {
			_, err = s.send(ctx, reset, keys[:1], "")
		}
	}
	return err
}

func (s *Store) giveBack(ctx context.Context, op *driver.Op) error {
	own := [1]driver.Op{*op}
	if op.Policy.Block.Refusals > 0 { // a GiveBack is never refused
		open := *op.Policy
		open.Block = driver.Block{}
		own[0].Policy = &open
	}
	err := s.decide(ctx, own[:], sets[op.Policy.Algorithm].reward, takeBack)
	op.Answer = own[0].Answer
	return err
}

// extend moves charges to now, in one script. It waits for replicas only if it moves a booking. On a cluster the error is
// [driver.ErrApart] for keys of different slots.
func (s *Store) extend(ctx context.Context, ops []driver.Op) error {
	again := slices.Clone(ops)
	booked := ops[0].Delay > 0
	var arg []byte
	for i := range again {
		op, policy := &again[i], ops[i].Policy
		ops[i].Answer.At = 0
		if !compact(policy.Algorithm) {
			return driver.ErrUnsupported
		}
		op.Units = 0
		settlement := packSettlement(&op.Settlement)
		op.ID = ""
		length := int64(len(settlement))
		if booked {
			length += 1 << 15
			op.Within = 0
		} else {
			op.Policy = &driver.Policy{
				Algorithm: policy.Algorithm, Resolution: policy.Resolution,
				Limits: []driver.Limit{{Units: driver.MaxUnits, Window: policy.Longest()}},
			}
		}
		arg = append(appendUint(arg, 2, length), settlement...)
	}
	keys, err := s.keys(ops)
	if err != nil {
		return err
	}
	var waits []driver.Op // for replicas
	if booked {
		waits = again
	}
	reply, err := s.run(ctx, waits, logExtend, keys, string(arg)+pack(again, false, calendarNow(again)))
	if err != nil || reply == "" {
		return err
	}
	decided, at, err := unpack(again, reply)
	if err != nil || !decided || slices.ContainsFunc(again, func(op driver.Op) bool { return !op.Answer.Allowed() }) {
		return err
	}
	for i := range ops {
		ops[i].Answer.At = at
	}
	return nil
}

// beside returns the name of a key of another kind in the slot of a subject's own key, such as "sash:block:{log3:user:42}:".
// Braces in keys or prefixes that are not from sash.Key can make it take a few thousand tries to find it.
func (s *Store) beside(kind, own, end string) string {
	name := s.prefix + kind + ":{" + hashTag(own) + "}:" + end
	for n := 0; slot(name) != slot(own); n++ {
		name = s.prefix + kind + ":{" + strconv.Itoa(n) + "}:" + end
	}
	return name
}

func (s *Store) blockKey(own string) string { return s.beside("block", own, own[len(s.prefix):]) }

// coolDownKey returns the name of the key of a subject's cool-down, in the slot of its sliding log.
func (s *Store) coolDownKey(key string) string {
	return s.beside("cooldown", s.Key(key, &driver.Policy{Algorithm: driver.SlidingLog}), key)
}

// packBlock writes the part of block.lua's argument that follows the argument of the decision.
func packBlock(b *driver.Block) string {
	var buf [16]byte
	return string(appendUint(buf[:0], 2, b.Refusals, 7, b.Window, 7, b.Length))
}

// cutLefts splits off the end of a reply of block.lua: the time until the block of each subject ends. A reply without an answer has none.
func cutLefts(reply string, subjects int) (rest, lefts string) {
	end := len(reply) - 8*subjects
	if end <= 16 || int64(number(reply)) < 0 {
		return reply, ""
	}
	return reply[:end], reply[end:]
}

// bar turns answers into refusals if their subjects are blocked, or if block.lua says that they refuse while another subject is blocked.
func bar(ops []driver.Op, lefts string) error {
	for i := 0; len(lefts) >= 8; i, lefts = i+1, lefts[8:] {
		left := number(lefts)
		if left>>52 == 1 {
			left -= 1 << 52
			window.Foresee(&ops[i].Answer, ops[i].Cost)
		}
		if left>>53 != 0 {
			return errors.New("redisstore: a script returned an impossible length of a block")
		}
		if left > 0 {
			window.Bar(&ops[i].Answer, int64(left))
		}
	}
	return nil
}

// cool begins a cool-down, which has a key of its own, in the slot of the subject's sliding log. It does not wait for replicas.
func (s *Store) cool(ctx context.Context, op *driver.Op) error {
	c := op.CoolDown
	guessed := int64(0)
	if c.Guessed {
		guessed = 1
	}
	arg := appendUint(nil, 7, max(0, c.Length), 1, guessed)
	reply, err := s.send(ctx, coolDown, []string{s.coolDownKey(op.Key)}, string(arg))
	op.CoolDown = driver.CoolDown{}
	if err != nil || reply == "" {
		return err
	}
	if len(reply) != 16 {
		return fmt.Errorf("redisstore: a script answered %d bytes where 16 were due", len(reply))
	}
	first := number(reply) // length and guessed
	op.CoolDown = driver.CoolDown{Length: int64(first >> 8), Left: int64(number(reply[8:])), Guessed: first&1 != 0}
	return nil
}

// Instances records on Redis that an instance of a group is alive, and returns how many are, including this one. That number shares each
// limit while Redis cannot be reached. Each instance calls Instances with an ID of its own, such as a host name and a process ID, a few
// times in each ttl, of whole milliseconds. An instance that has not called for a ttl is no longer counted.
//
// After Redis has lost its state or its clock has jumped forward, the count is too low until every instance has called again. A caller
// that must not admit too much uses the highest count of the last ttl. After the clock went back, the count is too high for a while. Errors
// are [sash.ErrInvalidKey] for a group or ID, [sash.ErrInvalidLimit] for a ttl, and those of the client.
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
