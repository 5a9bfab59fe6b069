package driver_test

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A logged store prints every decision. It has all powers of the store behind it.
type logged struct{ driver.Passthrough }

func (l *logged) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	answer, err := l.Next.Decide(ctx, req)
	fmt.Printf("%s asked for %d: allowed %v, %d left\n", req.Key, req.Cost, answer.Allowed(), answer.Remaining())
	return answer, err
}

func ExamplePassthrough() {
	store := &logged{driver.Passthrough{Next: memstore.New(nil)}}
	limiter, err := sash.New(store, nil, sash.Every(3, time.Hour))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	r, err := limiter.Reserve(ctx, "ann", 2) // memstore can settle, and so can the decorator
	if err != nil {
		panic(err)
	}
	_ = r.Settle(ctx, 1)
	_, _ = limiter.AllowN(ctx, "ann", 2)
	// Output:
	// ann asked for 2: allowed true, 1 left
	// ann asked for 2: allowed true, 0 left
}
