package sash_test

import (
	"context"
	"fmt"
	"log"

	"example.com/sash"
	"example.com/sash/memstore"
)

// The code of docs/migrating/x-time-rate.md.
func Example_migratingFromXTimeRate() {
	ctx := context.Background()
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.AllowN(ctx, "api", 5)
	if err != nil {
		log.Fatal(err)
	}
	if !res.Allowed {
		fmt.Println("limited, retry after", res.RetryAfter)
		return
	}
	if err := limiter.WaitN(ctx, "api", 2); err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Remaining)
	// Output: 55
}
