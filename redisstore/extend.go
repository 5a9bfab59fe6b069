package redisstore

import (
	"context"
	"fmt"
	"strings"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// logExtend settles and decides at one time.
var logExtend = func() *Script {
	source := load("log_extend.lua").source
	for mark, part := range map[string]*Script{"-- SETTLE\n": logSettle, "-- DECIDE\n": log} {
		source = strings.Replace(source, mark, strings.Replace(part.source, "call('TIME')", "clock", 1), 1)
	}
	return NewScript("log_extend.lua", source).With(threshold.Scripts)
}()

var _ driver.Extender = (*Store)(nil)

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
