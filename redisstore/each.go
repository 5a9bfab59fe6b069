package redisstore

import (
	"context"
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
		n := 1
		var err error
		if policy := reqs[at].Policy; compact(policy.Algorithm) && policy.Block.Refusals == 0 && s.wait.Replicas <= 0 {
			n, err = s.decideEach(ctx, reqs[at:min(len(reqs), at+mostAtOnce)], answers[at:])
		} else {
			answers[at], err = s.Decide(ctx, reqs[at])
		}
		if err != nil {
			return nil, err
		}
		if n == 0 { // the first needs other calendar boundaries
			n = 1
			if answers[at], err = s.Decide(ctx, reqs[at]); err != nil {
				return nil, err
			}
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
