package netbench

import (
	"context"
	"strings"

	"example.com/sash/redisstore"
)

// empty is a script that answers as much as a decision on one limit does, and is sent as much.
var empty = redisstore.NewScript("empty.lua", `return "`+strings.Repeat("x", 48)+`"`)

// emptyKey and emptyArg are as long as those of a decision.
var (
	emptyKey = "sash:log:client:000000"
	emptyArg = strings.Repeat("x", 26)
)

// emptyCalls are the clients' own calls of an empty script.
func emptyCalls() []contender {
	return []contender{
		{name: "empty EVALSHA, go-redis", open: func(addr string, _ quota) (*opened, error) {
			c := openGoRedis(addr)
			err := c.ScriptLoad(context.Background(), empty.Text).Err()
			return &opened{
				decide: func(ctx context.Context, _ string) (bool, error) {
					reply, err := c.EvalSha(ctx, empty.SHA1, []string{emptyKey}, emptyArg).Text()
					return len(reply) == 48, err
				},
				close: func() { c.Close() },
			}, err
		}},
		{name: "empty EVALSHA, rueidis", open: func(addr string, _ quota) (*opened, error) {
			c, err := openRueidis(addr, 0)
			if err != nil {
				return nil, err
			}
			err = c.Do(context.Background(), c.B().ScriptLoad().Script(empty.Text).Build()).Error()
			return &opened{
				decide: func(ctx context.Context, _ string) (bool, error) {
					reply, err := c.Do(ctx, c.B().Evalsha().Sha1(empty.SHA1).Numkeys(1).Key(emptyKey).Arg(emptyArg).Build()).ToString()
					return len(reply) == 48, err
				},
				close: c.Close,
			}, err
		}},
	}
}

// added is one goroutine on one key: what Sash adds to the client's own call of a script.
func (r *run) added() error {
	all := append(emptyCalls(), r.plain...)
	return r.rounds(single, 1, all)
}
