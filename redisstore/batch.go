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

// DecideEach implements [driver.Batcher] in one round trip for each 64 requests, under the algorithms that keep a compact
// log. Under the others, and for calls that wait for replicas, it makes a round trip for each request.
func (s *Store) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	answers := make([]driver.Answer, len(reqs))
	for at := 0; at < len(reqs); {
		n := 0
		var err error
		if policy := reqs[at].Policy; compact(policy.Algorithm) && policy.Block.Refusals == 0 && s.wait.Replicas <= 0 {
			n, err = s.decideEach(ctx, reqs[at:min(len(reqs), at+mostAtOnce)], answers[at:])
		}
		if n == 0 && err == nil { // the first goes by itself, or needs other calendar boundaries
			n = 1
			answers[at], err = s.Decide(ctx, reqs[at])
		}
		if err != nil {
			return nil, err
		}
		at += n
	}
	return answers, nil
}

// decideEach decides requests by one script, up to one that needs other calendar boundaries. It returns how many it has
// decided.
func (s *Store) decideEach(ctx context.Context, reqs []driver.Request, answers []driver.Answer) (int, error) {
	now := calendarNow(reqs[:1])
	var args strings.Builder
	for i := range reqs {
		one := reqs[i : i+1]
		arg := pack(one, one[0].Policy.CountRefused, now) + packBooking(bookable(one), 0)
		if i == 0 {
			args.Write(appendUint(nil, 2, int64(len(arg))))
		}
		args.WriteString(arg)
	}
	reply, err := s.send(ctx, logEach, []string{s.Key(reqs[0].Key, reqs[0].Policy)}, args.String())
	if err != nil {
		return 0, err
	}
	size := 24 + 32*len(reqs[0].Policy.Limits)
	for i := range reqs {
		decided, _, err := unpack(reqs[i:i+1], reply[:min(size, len(reply))], answers[i:i+1])
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
	return len(reqs), nil
}

// Gathers implements [driver.Gatherer]: it takes plain decisions and peeks, under the algorithms that keep a compact log.
// On a cluster the place is the slot of the key.
func (s *Store) Gathers(req *driver.Request) (place int, ok bool) {
	p := req.Policy
	switch {
	case !compact(p.Algorithm), p.Block.Refusals > 0, req.Within > 0, req.Partial, req.Forced, s.wait.Replicas > 0, s.apart.Load():
		return 0, false
	case s.scripts.Cluster():
		return s.Slot(req.Key, p), true
	}
	return 0, true
}

// DecideMany implements [driver.Gatherer], in one script.
func (s *Store) DecideMany(ctx context.Context, reqs []driver.Request) ([]driver.Answer, []error) {
	answers, errs := make([]driver.Answer, len(reqs)), make([]error, len(reqs))
	open := make([]int, len(reqs)) // not yet decided
	for i := range open {
		open[i] = i
	}
	now := calendarNow(reqs)
	for range mostTries {
		if len(open) == 0 {
			return answers, errs
		}
		open, now = s.decideMany(ctx, reqs, open, now, answers, errs)
	}
	for _, i := range open {
		errs[i] = driver.ErrApart
	}
	return answers, errs
}

// decideMany decides the open requests by one script. It returns those that need other calendar boundaries, in the memory
// of open, and the server's time, around which these are.
func (s *Store) decideMany(ctx context.Context, reqs []driver.Request, open []int, now int64, answers []driver.Answer, errs []error) ([]int, int64) {
	keys := make([]string, len(open))
	var args arguments
	for n, i := range open {
		keys[n] = s.Key(reqs[i].Key, reqs[i].Policy)
		args.add(pack(reqs[i:i+1], reqs[i].Policy.CountRefused, now))
	}
	reply, err := s.send(ctx, logMany, keys, string(args.all))
	if err != nil {
		err = s.alone(err)
		for _, i := range open {
			errs[i] = err
		}
		return nil, now
	}
	later, at := open[:0], now
	for _, i := range open {
		var one string
		one, reply, errs[i] = cutAnswer(reply)
		if errs[i] != nil {
			continue
		}
		decided, when, err := unpack(reqs[i:i+1], one, answers[i:i+1])
		if errs[i] = err; err == nil && !decided {
			later, at = append(later, i), when
		}
	}
	return later, at
}

// cutAnswer cuts the answer to the first request off a reply.
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

// subjectError returns the error that a script met on one of its keys. If that is not about the key, and so about the
// server, the request has not been decided, and has its own error if it is made by itself.
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

// alone returns the error of the whole script as that of each request. If the server has certainly decided none of them,
// each is to be decided by itself: then it has its own error, as where a user may use some of the keys.
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

// DecideAny implements [driver.Chooser], in one script. On a cluster the error is [driver.ErrApart] for keys of
// different slots, and for requests that may be booked under limits of the calendar: the instants of their bookings can
// lie outside any boundaries that are sent. The script looks at each subject that it has to compare, so its time grows
// with them: see any.lua.
func (s *Store) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	var answers [1]driver.Answer
	keys := make([]string, len(reqs))
	for i := range reqs {
		keys[i] = s.Key(reqs[i].Key, reqs[i].Policy)
	}
	now, policy := calendarNow(reqs), reqs[0].Policy
	counts := policy.Block.Refusals > 0 // each subject counts its refusals
	if counts || reqs[0].Within > 0 && now != 0 || s.scatters(keys) {
		return 0, driver.Answer{}, driver.ErrApart
	}
	script := sets[policy.Algorithm].choose
	for range mostTries {
		reply, err := s.run(ctx, reqs, script, keys, packAny(reqs, now))
		if errors.Is(err, driver.ErrRejected) {
			err = driver.NoneOf(len(reqs), err)
		}
		if err != nil {
			return 0, driver.Answer{}, err
		}
		chosen := 0
		if len(reply) > 16 && int64(number(reply)) != -1 { // otherwise the calendar boundaries did not surround the server's time
			n := len(reply) - 2
			chosen, reply = int(binary.BigEndian.Uint16([]byte(reply[n:]))), reply[:n]
		}
		if chosen >= len(reqs) {
			return 0, driver.Answer{}, fmt.Errorf("redisstore: a script chose subject %d of %d", chosen, len(reqs))
		}
		decided, at, err := unpack(reqs[chosen:chosen+1], reply, answers[:])
		if err != nil || decided {
			return chosen, answers[0], err
		}
		now = at
	}
	return 0, driver.Answer{}, errUnsteady
}

// packAny writes the argument of any.lua.
func packAny(reqs []driver.Request, now int64) string {
	args := arguments{all: []byte{0}}
	each := func(most int64) {
		args.before = ""
		for _, req := range reqs {
			req.Within = min(req.Within, most)
			packed := pack([]driver.Request{req}, false, now)
			if compact(req.Policy.Algorithm) {
				packed += packBooking(req.Within, 0)
			}
			args.add(packed)
		}
	}
	each(1) // now: a call that may not be booked at all would go ahead of bookings
	if reqs[0].Within > 0 && compact(reqs[0].Policy.Algorithm) {
		args.all[0] = 1
		each(driver.MaxAhead)
	}
	return string(args.all)
}

// Arguments are those of several requests, each behind its length. Requests that are equal but for their keys, as those of most
// pools, are written once: the length of one that is like the one before is 0.
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
