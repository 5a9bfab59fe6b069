package sash_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"example.com/sash"
	"example.com/sash/memstore"
)

// A model that is paid by the token: what a call takes is known when the answer is there. Each call
// reserves the most that it may take, and gives back what it did not.
func ExampleLimiter_Reserve() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	ask := func(ctx context.Context, maxTokens int64) (string, error) {
		r, err := limiter.Reserve(ctx, "model", maxTokens)
		if err != nil {
			return "", err
		}
		if !r.Allowed() {
			return "refused", nil
		}
		defer r.Cancel(ctx) // gives all back, unless the call is settled
		const tokens = 12   // what the model says that it took
		return "answered", r.Settle(ctx, tokens)
	}

	var mu sync.Mutex
	count := make(map[string]int)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			answer, err := ask(context.Background(), 20)
			if err != nil {
				log.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			count[answer]++
		})
	}
	group.Wait()
	left, err := limiter.Peek(context.Background(), "model")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(count["answered"], "answered,", left.Remaining, "of 100 tokens left")
	for range 3 { // 40, 28 and 16 are left: a third call of at most 20 might take more
		answer, err := ask(context.Background(), 20)
		fmt.Println(answer, err)
	}
	// Output:
	// 5 answered, 40 of 100 tokens left
	// answered <nil>
	// answered <nil>
	// refused <nil>
}
