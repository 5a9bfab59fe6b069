package stack_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/stack"
)

// A client that is over its limit and does not stop is refused from memory.
func Example() {
	store, err := stack.New(memstore.New(nil), nil) // in production: goredisstore.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sash.New(store, nil, sash.PerHour(1))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := limiter.Allow(context.Background(), "client")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Source)
	}
	// Output:
	// true store
	// false store
	// false cache
}

// A key that is called very often, in a fleet of four: most calls are decided in memory, and while the store is away each
// process goes on with a quarter of the limit.
func Example_hotKey() {
	store, err := stack.New(memstore.New(nil), &stack.Options{
		Lease: 100 * time.Millisecond, // the same in all four
		Failover: failover.Options{
			Modes:     failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}},
			Instances: func() int { return 4 },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sash.New(store, nil, sash.PerHour(50_000))
	if err != nil {
		log.Fatal(err)
	}
	leased := 0
	for range 10_000 {
		res, err := limiter.Allow(context.Background(), "everybody")
		if err != nil {
			log.Fatal(err)
		}
		if res.Source == sash.FromLease {
			leased++
		}
	}
	fmt.Println("most out of a lease:", leased > 9_000)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println("closed:", store.Close(ctx)) // what is left of the lease goes back
	// Output:
	// most out of a lease: true
	// closed: <nil>
}
