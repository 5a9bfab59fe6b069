package goredisstore_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

// The code of docs/migrating/redis_rate.md.
func Example_migratingFromRedisRate() {
	server, err := redistest.Run() // a Redis server for this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()
	ctx := context.Background()

	client := redis.NewClient(goredisstore.Tune(&redis.Options{Addr: server.Addr()}))
	defer client.Close()
	limiter, err := sash.New(goredisstore.New(client, nil), nil, sash.PerSecond(10))
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := limiter.Allow(ctx, sash.Key("project", "123"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("allowed", res.Allowed, "remaining", res.Remaining)
	// Output: allowed true remaining 9
}
