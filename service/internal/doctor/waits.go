package doctor

import (
	"context"

	"github.com/redis/go-redis/v9"

	"example.com/sash/service/internal/redisclient"
)

// waits looks whether admissions can wait for replicas (redisstore.Options.Replicas).
func (v *visit) waits(ctx context.Context) {
	missing := false
	_ = redisclient.Primaries(ctx, v.client, func(ctx context.Context, c *redis.Client) error {
		if err := c.Do(ctx, "WAIT", "0", "1").Err(); forbidden(err) {
			missing = true
			v.add("wait", node{address: address(c)}, Warn, "the user may not run WAIT: an admission that waits for replicas is charged, and then an error",
				"give the user the rights of the ACL line below, if admissions are to wait for replicas")
		}
		return nil
	})
	if !missing {
		v.note("wait", OK, "WAIT is permitted, for admissions that wait for replicas", "")
	}
}
