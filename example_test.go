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

// A model that is paid by the token: what a call takes is known when the answer is there. Each call
// reserves the most that it may take, and gives back what it did not.
func ExampleLimiter_Reserve() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	ask := func(ctx context.Context, maxTokens int64) (string, error) {
		r, err := limiter.Reserve(ctx, "model", maxTokens, nil)
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

// What a window that slides changes. The limit is 50 calls in ten seconds. 50 calls come a second before a boundary of the
// fixed window, and 50 more a second after it, so all 100 lie in one window of ten seconds.
func Example_boundary() {
	now := time.Unix(0, 0)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	burst := func(limiter *sash.Limiter, at time.Duration) (admitted int) {
		now = time.Unix(0, 0).Add(at)
		for range 50 {
			res, err := limiter.Allow(context.Background(), "client")
			if err != nil {
				log.Fatal(err)
			}
			if res.Allowed {
				admitted++
			}
		}
		return admitted
	}
	for _, opts := range []sash.Options{
		{Algorithm: sash.FixedWindow}, {Algorithm: sash.SlidingLog}, {Algorithm: sash.SortedSetLog},
		{Algorithm: sash.SlidingBuckets, Resolution: 100 * time.Millisecond}, {Algorithm: sash.SlidingCounter}, {Algorithm: sash.GCRA},
	} {
		limiter, err := sash.New(store, &opts, sash.Every(50, 10*time.Second))
		if err != nil {
			log.Fatal(err)
		}
		before, after := burst(limiter, 9*time.Second), burst(limiter, 11*time.Second)
		fmt.Printf("%-15v %d before the boundary, %2d after it\n", limiter.Policy().Algorithm, before, after)
	}

	// Output:
	// fixed-window    50 before the boundary, 50 after it
	// sliding-log     50 before the boundary,  0 after it
	// sorted-set-log  50 before the boundary,  0 after it
	// sliding-buckets 50 before the boundary,  0 after it
	// sliding-counter 50 before the boundary,  5 after it
	// gcra            50 before the boundary, 10 after it
}

// One job under a fixed and a sliding window of the same rate. It makes 150 calls at once, and then 150 more, one every two
// seconds; a refused call comes again at its retry time. The job starts in the middle of a fixed window.
func Example_workload() {
	run := func(algorithm sash.Algorithm, limit sash.Limit) {
		now := time.Unix(150, 0)
		store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
		limiter, err := sash.New(store, &sash.Options{Algorithm: algorithm}, limit)
		if err != nil {
			log.Fatal(err)
		}
		refused := 0
		call := func() {
			for {
				res, err := limiter.Allow(context.Background(), "client")
				if err != nil {
					log.Fatal(err)
				}
				if res.Allowed {
					return
				}
				refused++
				now = now.Add(res.RetryAfter)
			}
		}
		for range 150 {
			call()
		}
		fetched := now
		for range 150 {
			call()
			now = now.Add(2 * time.Second)
		}
		fmt.Printf("%v by %v: refused %d times, first half after %v, all after %v\n",
			limit, algorithm, refused, fetched.Sub(time.Unix(150, 0)), now.Sub(time.Unix(150, 0)))
	}
	run(sash.FixedWindow, sash.PerMinute(60))
	run(sash.SlidingLog, sash.Every(300, 5*time.Minute))

	// Output:
	// 60/1m by fixed-window: refused 2 times, first half after 1m30s, all after 6m30s
	// 300/5m by sliding-log: refused 0 times, first half after 0s, all after 5m0s
}
