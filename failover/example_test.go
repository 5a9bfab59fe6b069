package failover_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

// unplugged is a store that cannot be reached.
type unplugged struct{}

func (unplugged) Do(context.Context, *driver.Batch) error { return errors.New("connection refused") }

func (unplugged) Powers() driver.Powers { return 0 }

// While the store is unavailable single units are admitted, up to 20 units are decided here over a
// quarter of the limit, and more than that is an error.
func Example() {
	store, err := failover.New(unplugged{}, &failover.Options{
		Modes: failover.Modes{Rules: []failover.Rule{
			{MaxCost: 1, Mode: failover.Open},
			{MaxCost: 20, Mode: failover.Local},
		}},
		Local:     memstore.New(nil),
		Instances: func() int { return 4 },
	})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sash.New(store, nil, sash.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	for _, cost := range []int64{1, 20, 20, 50} {
		res, err := limiter.AllowN(context.Background(), "user:42", cost)
		if errors.Is(err, sash.ErrUnavailable) {
			fmt.Println(cost, "units:", err)
			continue
		}
		fmt.Println(cost, "units:", res.Allowed, "from the", res.Source)
	}
	// Output:
	// 1 units: true from the policy
	// 20 units: true from the local
	// 20 units: false from the local
	// 50 units: sash: the store is unavailable: connection refused
}
