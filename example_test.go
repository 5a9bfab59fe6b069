package sash_test

import (
	"context"
	"fmt"
	"log"

	"example.com/sash"
	"example.com/sash/memstore"
)

// Two limits on every user, both of which must have room.
func Example() {
	ctx, id := context.Background(), "42"

	store := memstore.New(nil) // or goredisstore.New(client, nil), to share limits between processes
	limiter, err := sash.New(store, nil, sash.PerMinute(60), sash.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Allow(ctx, sash.Key("user", id))
	if err != nil {
		log.Fatal(err) // the call was wrong (an empty key, a cost above the limit), or the store failed
	}
	fmt.Println(res.Allowed, res.Remaining, res.RetryAfter) // a refusal charges nothing, and fits after RetryAfter

	// Output: true 59 0s
}
