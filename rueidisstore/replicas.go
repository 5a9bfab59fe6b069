package rueidisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"example.com/sash/redisstore"
)

// RunWait implements redisstore.Waiter. Both commands have a connection of their own: WAIT knows of no
// other's writes. On a cluster a MOVED or ASK, where nothing has run, is not followed but an error.
func (s *scripter) RunWait(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (reply string, confirmed int64, err error) {
	err = s.client.Dedicated(func(conn rueidis.DedicatedClient) error {
		if reply, err = run(ctx, conn, script, keys, arg); err != nil || !wait.For(reply) {
			return err
		}
		cmd := conn.B().Arbitrary("WAIT", strconv.Itoa(wait.Replicas), strconv.FormatInt(wait.Timeout.Milliseconds(), 10)).Build()
		confirmed, err = conn.Do(ctx, cmd).AsInt64()
		if err = ended(ctx, err); err != nil {
			return fmt.Errorf("rueidisstore: WAIT after %s: %w", script.Name, err)
		}
		return nil
	})
	return reply, confirmed, err
}
