package denials_test

import (
	"context"
	"fmt"
	"log"

	"example.com/sash"
	"example.com/sash/denials"
	"example.com/sash/memstore"
)

// Somebody who is over the limit and does not stop is answered from memory.
func Example() {
	store, err := denials.New(memstore.New(nil), nil) // in earnest: over one on Redis, such as goredisstore.New(client, nil)
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
