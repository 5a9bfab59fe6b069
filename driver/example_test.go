package driver_test

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A logged store prints what is charged. It has all powers of the store behind it.
type logged struct{ driver.Passthrough }

func (l *logged) Do(ctx context.Context, b *driver.Batch) error {
	err := l.Store.Do(ctx, b)
	for i := range b.Ops {
		fmt.Printf("%s was charged %d units\n", b.Ops[i].Key, b.Charged(i))
	}
	return err
}

func ExamplePassthrough() {
	store := &logged{driver.Passthrough{Store: memstore.New(nil)}}
	limiter, err := sash.New(store, nil, sash.Every(3, time.Hour))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	r, err := limiter.Reserve(ctx, "ann", 2, nil) // memstore can settle, and so can the decorator
	if err != nil {
		panic(err)
	}
	_ = r.Settle(ctx, 1)
	_, _ = limiter.AllowN(ctx, "ann", 2)
	// Output:
	// ann was charged 2 units
	// ann was charged -1 units
	// ann was charged 2 units
}
