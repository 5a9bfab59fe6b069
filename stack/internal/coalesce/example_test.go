package coalesce_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/stack/internal/coalesce"
)

// Many goroutines share one hot key, and exactly its 100 units are admitted.
func Example() {
	store := coalesce.New(memstore.New(nil)) // in production: one on Redis, such as goredisstore.New(client, nil)
	limiter, err := sash.New(store, nil, sash.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			if res, err := limiter.Allow(context.Background(), "hot"); err == nil && res.Allowed {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	fmt.Println(admitted.Load())
	// Output: 100
}
