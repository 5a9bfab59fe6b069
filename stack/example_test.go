package stack_test

import (
	"context"
	"fmt"
	"log"

	"example.com/sash"
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
