package redisstore

import (
	"context"
	"fmt"
	"strings"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

var (
	rotaLog = handing(logSettle, log)
	rotaSet = handing(scripts[driver.SortedSetLog], scripts[driver.SortedSetLog])
)

var _ driver.Hander = (*Store)(nil)

// Hand implements [driver.Hander], in one script. The rota is a second key in the slot of the first. A script of two keys
// does not run while their slot moves; then the charge is given back and the request decided by two scripts of one key, and
// takes no turn.
func (s *Store) Hand(ctx context.Context, req driver.Request, line driver.Line) (driver.Answer, error) {
	script := rotaLog
	switch {
	case req.Policy.Algorithm == driver.SortedSetLog:
		script = rotaSet
	case !compact(req.Policy.Algorithm):
		return driver.Answer{}, driver.ErrUnsupported
	}
	rota := s.besideKey(fmt.Sprintf("rota-%d", req.Policy.Limits[0].Units), req.Key, req.Policy)
	reqs, keys := []driver.Request{req}, []string{s.Key(req.Key, req.Policy), rota}
	reply, err := s.run(ctx, reqs, script, keys, pack(reqs, false, 0)+packLine(&req, &line))
	if apart(err) {
		if line.Back != 0 {
			if err := s.Settle(ctx, driver.Settlement{Request: req, At: line.Back}); err != nil {
				return driver.Answer{}, err
			}
		}
		return s.Decide(ctx, req)
	}
	if err != nil {
		return driver.Answer{}, err
	}
	var answers [1]driver.Answer
	_, _, err = unpack(reqs, reply, answers[:])
	return answers[0], err
}

// packLine writes what follows the argument of a decision in that of rota.lua.
func packLine(req *driver.Request, line *driver.Line) string {
	var settlement string
	if line.Back != 0 {
		settlement = packSettlement(&driver.Settlement{Request: *req, At: line.Back})
	}
	b := appendUint([]byte(settlement), 8, int64(line.Name))
	b = appendUint(appendUint(b, 7, line.Stays), 4, line.Most)
	more := byte(0)
	if line.More {
		more = 1
	}
	return string(appendUint(append(b, more), 2, int64(len(settlement))))
}

// handing returns the script that settles and then decides in turn.
func handing(settle, decide *Script) *Script {
	return joining("rota_"+decide.Name, "rota.lua", settle, decide)
}

// joining returns the script of a file that settles where it says SETTLE, and decides where it says DECIDE, at one time.
func joining(name, file string, settle, decide *Script) *Script {
	source := load(file).source
	for mark, part := range map[string]*Script{"-- SETTLE\n": settle, "-- DECIDE\n": decide} {
		source = strings.Replace(source, mark, strings.Replace(part.source, "call('TIME')", "clock", 1), 1)
	}
	return NewScript(name, source).With(threshold.Scripts)
}
