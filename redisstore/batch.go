package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"example.com/sash/driver"
)

// mostAtOnce is the most requests that one script decides, so that it takes less than a millisecond.
const mostAtOnce = 64

// each carries out operations one after the other. Under the algorithms that keep a compact log, one round trip carries up to 64
// charges of one subject, or charges of different subjects that gather. Settlements take one round trip, or are ErrApart.
func (s *Store) each(ctx context.Context, ops []driver.Op) error {
	settles, inTurn, gathers := true, true, true
	for i := range ops {
		op := &ops[i]
		_, ok := s.Gathers(op)
		settles, gathers = settles && op.Kind == driver.Settle, gathers && ok
		inTurn = inTurn && s.plain(op) && op.Key == ops[0].Key && op.Policy.Equal(ops[0].Policy)
	}
	switch {
	case settles:
		return s.settle(ctx, ops)
	case inTurn:
		return s.inTurn(ctx, ops)
	case gathers:
		s.many(ctx, ops)
		return nil
	}
	for i := range ops {
		ops[i].Err = s.together(ctx, ops[i:i+1])
	}
	return nil
}

// plain reports whether an operation is a charge that one script can decide with others.
func (s *Store) plain(op *driver.Op) bool {
	p := op.Policy
	return op.Kind == driver.Charge && op.ID == "" && compact(p.Algorithm) && p.Block.Refusals == 0 && !op.Partial && !op.Forced &&
		s.wait.Replicas <= 0
}

func (s *Store) inTurn(ctx context.Context, ops []driver.Op) error {
	for len(ops) > 0 {
		n, err := s.oneScript(ctx, ops[:min(len(ops), mostAtOnce)])
		if n == 0 && err == nil { // the first charge needs other calendar boundaries
			n, err = 1, s.together(ctx, ops[:1])
		}
		if err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// oneScript decides charges of a subject by one script, up to the first that needs other calendar boundaries. It returns how
// many it has decided.
func (s *Store) oneScript(ctx context.Context, ops []driver.Op) (int, error) {
	now := calendarNow(ops[:1])
	var args strings.Builder
	for i := range ops {
		one := ops[i : i+1]
		arg := pack(one, one[0].Policy.CountRefused, now) + packBooking(bookable(one), 0)
		if i == 0 {
			args.Write(appendUint(nil, 2, int64(len(arg))))
		}
		args.WriteString(arg)
	}
	reply, err := s.send(ctx, logEach, []string{s.Key(ops[0].Key, ops[0].Policy)}, args.String())
	if err != nil {
		return 0, err
	}
	size := 24 + 32*len(ops[0].Policy.Limits)
	for i := range ops {
		decided, _, err := unpack(ops[i:i+1], reply[:min(size, len(reply))])
		if err != nil {
			return i, err
		}
		if !decided {
			return i, nil
		}
		if len(reply) < size { // of a server that is no Redis
			return i, fmt.Errorf("redisstore: a script returned %d bytes instead of %d: %w", len(reply), size, driver.ErrRejected)
		}
		reply = reply[size:]
	}
	return len(ops), nil
}

// Gathers returns the place at which a group commit can carry out an operation with others, and whether it can. It takes plain charges and
// looks under the algorithms that keep a compact log. On a cluster the place is the slot of the key.
func (s *Store) Gathers(op *driver.Op) (place int, ok bool) {
	switch {
	case !s.plain(op), op.Within > 0, s.apart.Load():
		return 0, false
	case s.scripts.Cluster():
		return s.Slot(op.Key, op.Policy), true
	}
	return 0, true
}

func (s *Store) many(ctx context.Context, ops []driver.Op) {
	open := make([]int, len(ops)) // not yet decided
	for i := range open {
		open[i] = i
	}
	now := calendarNow(ops)
	for range mostTries {
		if len(open) == 0 {
			return
		}
		open, now = s.decideMany(ctx, ops, open, now)
	}
	for _, i := range open {
		ops[i].Err = driver.ErrApart
	}
}

// decideMany decides the open operations by one script. It returns the operations that need other calendar boundaries, in the
// memory of open, and the server's time, which those boundaries have to surround.
func (s *Store) decideMany(ctx context.Context, ops []driver.Op, open []int, now int64) ([]int, int64) {
	keys := make([]string, len(open))
	var args arguments
	for n, i := range open {
		keys[n] = s.Key(ops[i].Key, ops[i].Policy)
		args.add(pack(ops[i:i+1], ops[i].Policy.CountRefused, now))
	}
	reply, err := s.send(ctx, logMany, keys, string(args.all))
	if err != nil {
		err = s.alone(err)
		for _, i := range open {
			ops[i].Err = err
		}
		return nil, now
	}
	later, at := open[:0], now
	for _, i := range open {
		op := &ops[i]
		var one string
		if one, reply, op.Err = cutAnswer(reply); op.Err != nil {
			continue
		}
		decided, when, err := unpack(ops[i:i+1], one)
		if op.Err = err; err == nil && !decided {
			later, at = append(later, i), when
		}
	}
	return later, at
}

func cutAnswer(reply string) (answer, rest string, err error) {
	const failed = 1 << 15
	if len(reply) >= 2 {
		n := int(binary.BigEndian.Uint16([]byte(reply[:2])))
		if reply = reply[2:]; len(reply) >= n&^failed {
			answer, rest = reply[:n&^failed], reply[n&^failed:]
			if n&failed != 0 {
				return "", rest, subjectError(answer)
			}
			return answer, rest, nil
		}
	}
	return "", "", fmt.Errorf("redisstore: the reply of a script is cut off: %w", driver.ErrRejected)
}

// subjectError returns the error that a script met on one of its keys. If the error is not about the key but about the
// server, the request has not been decided, and gets its own error when it is made by itself.
func subjectError(text string) error {
	if rest, ok := strings.CutPrefix(text, "@user_script:"); ok { // Redis 6.2
		text = strings.TrimLeft(rest, "0123456789: ")
	}
	err := rejected(fmt.Errorf("redisstore: %s: %w", logMany.Name, errors.New(strings.TrimPrefix(text, "-"))))
	if !errors.Is(err, driver.ErrRejected) && Uncharged(err) {
		return driver.ErrApart
	}
	return err
}

// alone turns the error of a whole script into the error of each request. If the server has certainly decided none of them,
// each is to be decided by itself, so that it gets its own error: a user may have access to some of the keys only.
func (s *Store) alone(err error) error {
	crossed := !s.scripts.Cluster() && (errors.Is(err, driver.ErrApart) || says(err, "CROSSSLOT"))
	if crossed { // a cluster behind a client that does not look like one
		s.apart.Store(true)
	}
	if crossed || errors.Is(err, driver.ErrApart) || Uncharged(err) {
		return driver.ErrApart
	}
	return err
}

// any decides one of several charges in one script, which looks at each subject that it has to compare: see any.lua. The error is also
// [driver.ErrApart] for charges that may be booked under calendar limits, because bookings can lie outside any boundaries that are sent.
func (s *Store) any(ctx context.Context, b *driver.Batch) error {
	ops := b.Ops
	now, policy := calendarNow(ops), ops[0].Policy
	counts := policy.Block.Refusals > 0 // each subject counts its refusals
	keys, err := s.keys(ops)
	if counts || ops[0].Within > 0 && now != 0 || err != nil {
		return driver.ErrApart
	}
	script := sets[policy.Algorithm].choose
	for range mostTries {
		reply, err := s.run(ctx, ops, script, keys, packAny(ops, now))
		if errors.Is(err, driver.ErrRejected) {
			err = fmt.Errorf("none of the %d subjects can be decided, the first because of this: %w", len(ops), err)
		}
		if err != nil {
			return err
		}
		chosen := 0
		if len(reply) > 16 && int64(number(reply)) != -1 { // otherwise the calendar boundaries did not surround the server's time
			n := len(reply) - 2
			chosen, reply = int(binary.BigEndian.Uint16([]byte(reply[n:]))), reply[:n]
		}
		if chosen >= len(ops) {
			return fmt.Errorf("redisstore: a script chose subject %d of %d", chosen, len(ops))
		}
		b.Chosen = chosen
		decided, at, err := unpack(ops[chosen:chosen+1], reply)
		if err != nil || decided {
			return err
		}
		now = at
	}
	return errUnsteady
}

func packAny(ops []driver.Op, now int64) string {
	args := arguments{all: []byte{0}}
	each := func(most int64) {
		args.before = ""
		for i := range ops {
			packed := pack(ops[i:i+1], false, now)
			if compact(ops[i].Policy.Algorithm) {
				packed += packBooking(min(ops[i].Within, most), 0)
			}
			args.add(packed)
		}
	}
	each(1) // only now: a call that may not be booked at all would go ahead of bookings
	if ops[0].Within > 0 && compact(ops[0].Policy.Algorithm) {
		args.all[0] = 1
		each(driver.MaxAhead)
	}
	return string(args.all)
}

// arguments are the arguments of several requests, each behind its length. A request that equals the one before except for the key,
// as in most pools, is written as a length of 0.
type arguments struct {
	all    []byte
	before string
}

func (a *arguments) add(arg string) {
	if arg == a.before {
		a.all = append(a.all, 0, 0)
		return
	}
	a.all = append(appendUint(a.all, 2, int64(len(arg))), arg...)
	a.before = arg
}
