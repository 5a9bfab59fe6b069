package goredisstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

func Example() {
	server, err := redistest.Run() // a Redis server for this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()

	addr := server.Addr()
	client := redis.NewClient(goredisstore.Tune(&redis.Options{Addr: addr}))
	defer client.Close()       // the store does not close it
	goredisstore.Greet(client) // errors name servers that are silent or not a Redis
	store := goredisstore.New(client, nil)
	limiter, err := sash.New(store, nil, sash.Every(25, 5*time.Second), sash.PerMinute(300))
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := limiter.AllowN(context.Background(), sash.Key("user", "42"), 20)
	fmt.Println(res.Allowed, res.Remaining, err)
	res, err = limiter.AllowN(context.Background(), sash.Key("user", "42"), 20)
	by, _ := res.RefusedBy()
	fmt.Println(res.Allowed, res.Remaining, by.Limit, err)

	// Output:
	// true 5 <nil>
	// false 5 25/5s <nil>
}

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
