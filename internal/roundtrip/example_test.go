package roundtrip

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/goredisstore"
	"example.com/sash/stack"
)

// A store that calls Redis as little as it can, and answers when Redis does not: here there is no Redis.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, DialTimeout: 20 * time.Millisecond})
	defer client.Close()

	store, err := stack.New(goredisstore.New(client, nil), &stack.Options{Failover: failover.Options{
		Modes: failover.Modes{Rules: []failover.Rule{
			{MaxCost: 1, Mode: failover.Open},   // admitted, not counted
			{MaxCost: 20, Mode: failover.Local}, // this process's share; what costs more is an error
		}},
		Instances: func() int { return 4 }, // that share the limits
	}})
	if err != nil {
		log.Fatal(err)
	}

	limiter, err := sash.New(store, nil, sash.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	for _, cost := range []int64{1, 20, 50} {
		res, err := limiter.AllowN(context.Background(), "k", cost)
		if err != nil {
			fmt.Println(cost, "is an error")
		} else {
			fmt.Println(cost, res.Allowed, res.Source)
		}
	}
	// Output:
	// 1 true policy
	// 20 true local
	// 50 is an error
}

// While a node of a Cluster is down, the subjects of the other nodes are still decided: each of 64 runs of slots has its
// own breaker.
func Example_cluster() {
	addrs := []string{"10.0.0.7:7000", "10.0.0.8:7000"}
	client := redis.NewClusterClient(goredisstore.Tune(&redis.ClusterOptions{Addrs: addrs}))
	defer client.Close()
	goredisstore.Greet(client)
	shared := goredisstore.New(client, nil)
	const slots, parts = 16384, 64 // a run of slots is short, so that few lie on two nodes
	store, err := stack.New(shared, &stack.Options{Failover: failover.Options{
		Parts: parts,
		Part: func(key string, policy *driver.Policy) int {
			return shared.Slot(key, policy) * parts / slots
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sash.New(store, nil, sash.PerMinute(100))
	fmt.Println(limiter, err)
}
