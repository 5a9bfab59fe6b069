package redistest

import (
	"context"
	"strconv"
	"strings"

	"example.com/sash/redisstore"
)

// A Doer sends a command to a server and returns its reply: a [Server] or a [Remote].
type Doer interface {
	Do(args ...string) (any, error)
}

// Scripter returns a store's client over a plain connection of redistest, for tests that use no client library.
func Scripter(server Doer) redisstore.Scripter { return scripter{server} }

type scripter struct{ server Doer }

// Cluster implements [redisstore.Scripter].
func (s scripter) Cluster() bool { return false }

// Run implements [redisstore.Scripter].
func (s scripter) Run(_ context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	tail := append(append([]string{strconv.Itoa(len(keys))}, keys...), arg)
	reply, err := s.server.Do(append([]string{"EVALSHA", script.SHA1}, tail...)...)
	if err != nil && strings.Contains(err.Error(), "NOSCRIPT") {
		reply, err = s.server.Do(append([]string{"EVAL", script.Text}, tail...)...)
	}
	text, _ := reply.(string)
	return text, err
}
