package modeltest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Aging makes keys expire on the test's clock. A server's keys expire in real time, which has nothing to
// do with a clock that jumps and stands still. So before a script runs, its keys get the time to live that
// they have left on the clock, or go; afterwards what the script made of it is noted, and the keys get an
// hour of real time. All of that and the script are one step on the server.
type aging struct {
	mu   sync.Mutex
	ends map[string]time.Time // on the test's clock; guarded by mu
}

// wrap is a script around a script, whose text goes where the %s is. It gets the milliseconds that each
// key has left from ARGV[4] on: 0 when it has to go, -1 when nothing is known. It returns the script's
// reply and the milliseconds that each key then has: negative when it is not there.
const wrap = `local function script()
%s
end
for i, key in ipairs(KEYS) do
  local left = tonumber(ARGV[i + 3])
  if left == 0 then redis.call('DEL', key) elseif left > 0 then redis.call('PEXPIRE', key, left) end
end
local answer = {script()}
for i, key in ipairs(KEYS) do
  answer[i + 1] = redis.call('PTTL', key)
  if redis.call('EXISTS', key) == 1 then redis.call('PEXPIRE', key, 3600000) end
end
return answer
`

func wrapped(text string) string { return strings.Replace(wrap, "%s", text, 1) }

// slack is more real time than passes on the server within one step.
const slack = 20 * time.Millisecond

func (a *aging) before(now time.Time, keys []string) (left []any) {
	for _, key := range keys {
		end, ok := a.ends[key]
		switch {
		case !ok:
			left = append(left, "-1")
		case !end.After(now):
			left = append(left, "0")
			delete(a.ends, key)
		default:
			left = append(left, strconv.FormatInt(max(1, end.Sub(now).Milliseconds()), 10))
		}
	}
	return left
}

// after notes when keys expire, and returns the script's reply.
func (a *aging) after(now time.Time, keys []string, answer any) (string, error) {
	parts, _ := answer.([]any)
	if len(parts) != len(keys)+1 {
		return "", fmt.Errorf("a script answered %v", answer)
	}
	reply, ok := parts[0].(string)
	if !ok {
		return "", fmt.Errorf("a script answered %v", parts[0])
	}
	for i, key := range keys {
		left := time.Duration(parts[i+1].(int64)) * time.Millisecond
		end := now.Add(left)
		switch {
		case parts[i+1] == int64(-1):
			return "", errors.New("the key " + key + " has no expiry")
		case left < 0:
			delete(a.ends, key)
		case end.After(a.ends[key]) || a.ends[key].Sub(end) > 2*slack: // the script has moved it
			a.ends[key] = end.Add(slack)
		}
	}
	return reply, nil
}
