package rivals

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
)

//go:embed cell.lua
var cellScript string

var cell = redis.NewScript(cellScript)

// openCell opens redis-cell's arithmetic over go-redis: as many units at once as the limit has, and its rate.
func openCell(addr string, limit sash.Limit) (decide load.Decide, end func(), err error) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}) // a retried call charges twice
	return func(ctx context.Context, key string) (bool, error) {
		reply, err := cell.Run(ctx, c, []string{"cell:" + key}, limit.Units-1, limit.Units, int64(limit.Window/time.Second), 1).Int64Slice()
		return err == nil && reply[0] == 0, err
	}, func() { _ = c.Close() }, nil
}
