package lease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// Ten thousand calls of one key, most of them decided in memory. A process that ends gives back what is left.
func Example() {
	store, err := lease.New(memstore.New(nil), 100*time.Millisecond) // in production: over one on Redis
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
		if res.Source == driver.FromLease {
			leased++
		}
	}
	fmt.Println("most out of a lease:", leased > 9_000)

	if err := store.Release(context.Background()); err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Peek(context.Background(), "everybody")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("left:", res.Remaining)
	// Output:
	// most out of a lease: true
	// left: 40000
}
