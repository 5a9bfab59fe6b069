package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"example.com/sash/driver"
)

var _ driver.Gatherer = (*Store)(nil)

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
	var args strings.Builder
	before, end := "", 0 // of the last request that is not the one before
	for n, i := range open {
		keys[n] = s.Key(reqs[i].Key, reqs[i].Policy)
		arg := pack(reqs[i:i+1], reqs[i].Policy.CountRefused, now)
		if arg == before {
			args.WriteString("\x00\x00")
			continue
		}
		args.Write([]byte{byte(len(arg) >> 8), byte(len(arg))})
		args.WriteString(arg)
		before, end = arg, args.Len()
	}
	reply, err := s.send(ctx, logMany, keys, args.String()[:end])
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
	crossed := !s.scripts.Cluster() && (errors.Is(err, driver.ErrApart) || saysCrossSlot(err))
	if crossed { // a cluster behind a client that does not look like one
		s.apart.Store(true)
	}
	if crossed || errors.Is(err, driver.ErrApart) || Uncharged(err) {
		return driver.ErrApart
	}
	return err
}

func saysCrossSlot(err error) bool {
	for text := range chain(err) {
		if strings.HasPrefix(text, "CROSSSLOT") {
			return true
		}
	}
	return false
}
