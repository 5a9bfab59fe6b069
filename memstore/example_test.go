package memstore_test

import (
	"context"
	"fmt"
	"log"

	"example.com/sash"
	"example.com/sash/memstore"
)

func Example() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(2), sash.PerHour(60))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := limiter.Allow(context.Background(), sash.Key("user", "42"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Remaining)
		if by, refused := res.RefusedBy(); refused {
			fmt.Println("refused by", by.Limit.Name)
		}
	}
	// Output:
	// true 1
	// true 0
	// false 0
	// refused by 2/1m
}
