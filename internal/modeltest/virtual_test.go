package modeltest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/internal/judge"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
)

// A scripter runs scripts on one server: on the server's own time, or on a clock of the test's.
type scripter struct {
	client *redis.Client
	// clock, when it is not nil, takes the place of the server's: scripts get the time as an argument.
	clock *judge.Clock
	// thresholds, when they are not nil, take the place of the scripts'.
	thresholds threshold.Table
	// edit, when it is not nil, changes a script's text.
	edit func(name, text string) string
	// skew, when it is not nil, makes the store bring calendar boundaries around another time than the
	// clock's. Such a scripter must not be used concurrently.
	skew   func() time.Duration
	misled bool
	// aging, when it is not nil, makes keys expire on the clock. It must be set before the first run.
	aging *aging

	mu      sync.Mutex
	changed map[*redisstore.Script]*redisstore.Script // guarded by mu
}

func newClient(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 64, DisableIdentity: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { c.Close() })
	return c
}

// timeCall is how every script reads the clock: once.
const timeCall = "call('TIME')"

func (s *scripter) script(script *redisstore.Script) (*redisstore.Script, error) {
	if s.clock == nil && s.edit == nil && s.thresholds == nil {
		return script, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed := s.changed[script]; changed != nil {
		return changed, nil
	}
	text := script.Text
	if s.thresholds != nil {
		text = script.With(s.thresholds).Text
	}
	if s.edit != nil {
		text = s.edit(script.Name, text)
	}
	if s.clock != nil {
		if n := strings.Count(text, timeCall); n > 1 {
			return nil, fmt.Errorf("%s reads the clock %d times", script.Name, n)
		}
		text = strings.Replace(text, timeCall, "{ARGV[2], ARGV[3]}", 1)
	}
	if s.aging != nil {
		text = wrapped(text)
	}
	if s.changed == nil {
		s.changed = make(map[*redisstore.Script]*redisstore.Script)
	}
	s.changed[script] = redisstore.NewScript(script.Name, text)
	return s.changed[script], nil
}

// Run implements redisstore.Scripter.
func (s *scripter) Run(ctx context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	script, err := s.script(script)
	if err != nil {
		return "", err
	}
	args := []any{arg}
	var now time.Time
	if s.clock != nil {
		now = s.clock.Now()
		args = append(args, strconv.FormatInt(now.UnixMicro()/1e6, 10), strconv.FormatInt(now.UnixMicro()%1e6, 10))
	}
	if s.aging != nil {
		s.aging.mu.Lock()
		defer s.aging.mu.Unlock()
		args = append(args, s.aging.before(now, keys)...)
	}
	answer, err := s.client.EvalSha(ctx, script.SHA1, keys, args...).Result()
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		answer, err = s.client.Eval(ctx, script.Text, keys, args...).Result()
	}
	if err != nil {
		return "", err
	}
	reply, _ := answer.(string)
	if s.aging != nil {
		if reply, err = s.aging.after(now, keys, answer); err != nil {
			return "", err
		}
	}
	if s.skew != nil {
		reply = s.mislead(reply)
	}
	return reply, nil
}

// mislead moves the time in the first answer to a call that asks for other calendar boundaries: so the store brings
// boundaries that are a period off, which the script has to pick the right ones from.
func (s *scripter) mislead(reply string) string {
	if !strings.HasPrefix(reply, "\xff\xff\xff\xff") { // it is decided
		s.misled = false
		return reply
	}
	if len(reply) != 16 || s.misled {
		return reply
	}
	s.misled = true
	at := int64(binary.BigEndian.Uint64([]byte(reply[8:]))) + s.skew().Microseconds()
	return reply[:8] + string(binary.BigEndian.AppendUint64(nil, uint64(at)))
}

// Cluster implements redisstore.Scripter.
func (s *scripter) Cluster() bool { return false }

// Aging makes keys expire on the test's clock. A server's keys expire in real time, which has nothing to do with a clock that jumps and
// stands still. So before a script runs, its keys get the time to live that they have left on the clock, or go; afterwards what the
// script made of it is noted, and the keys get an hour of real time. All of that and the script are one step on the server.
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
