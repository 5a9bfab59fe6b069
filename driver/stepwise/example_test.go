package stepwise_test

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/driver/stepwise"
	"example.com/sash/memstore"
)

// The second step has no room, so the first is not charged either.
func Example() {
	policy, err := sash.NewPolicy(nil, sash.Every(3, time.Hour))
	if err != nil {
		panic(err)
	}
	charge := func(key string, cost int64) []driver.Op {
		return []driver.Op{{Settlement: driver.Settlement{Request: driver.Request{Key: key, Cost: cost, Policy: policy}}}}
	}
	store := memstore.New(nil)
	for _, cost := range []int64{2, 2} {
		admitted, err := stepwise.Decide(context.Background(), store, charge("ann", 1), charge("all", cost))
		fmt.Println(admitted, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
