package sash_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// At most two reports are made at once, over all processes that share the store. One whose process dies
// holds its slot for ten minutes, and no longer.
func ExampleConcurrency() {
	reports, err := sash.NewConcurrency(memstore.New(nil), nil, 2, 10*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	// Begin now or not at all, and end elsewhere.
	first, err := reports.Start(ctx, "reports")
	if err != nil || !first.Allowed() {
		log.Fatal("no slot: ", err)
	}

	// Run a function, or get an error if there is no slot.
	err = reports.Do(ctx, "reports", func(ctx context.Context) error {
		third := func(ctx context.Context) error {
			return reports.Do(ctx, "reports", func(context.Context) error { return nil })
		}
		fmt.Println("a third is refused:", errors.Is(third(ctx), sash.ErrLimited))
		if err := first.Release(ctx); err != nil {
			return err
		}
		fmt.Println("when the first has ended:", third(ctx))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Wait for a slot: ten reports, two at a time.
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			slot, err := reports.Wait(ctx, "reports")
			if err != nil {
				log.Fatal(err)
			}
			defer slot.Release(ctx)
		})
	}
	group.Wait()
	// Output:
	// a third is refused: true
	// when the first has ended: <nil>
}
