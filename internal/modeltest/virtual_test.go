package modeltest

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
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

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 64, DisableIdentity: true, ReadTimeout: time.Minute})
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
