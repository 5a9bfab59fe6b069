package sash_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// A pipeline sends batches to an API that takes 100 rows per 50 ms from the whole fleet. Each worker waits for its turn; a
// large batch is not overtaken by small ones.
func ExampleLimiter_WaitN() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.Every(100, 50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var sent atomic.Int64
	var workers sync.WaitGroup
	for _, rows := range []int64{20, 100, 70, 10, 40, 60} {
		workers.Go(func() {
			if err := limiter.WaitN(ctx, "api", rows); err != nil {
				log.Fatal(err) // ctx ended, or its deadline is nearer than the turn
			}
			sent.Add(rows)
		})
	}
	workers.Wait()
	fmt.Println(sent.Load(), "rows sent")
	// Output: 300 rows sent
}

// Cron jobs share a quota of two reports an hour. Each learns when it starts; one that would start too late leaves it to
// the next run.
func ExampleLimiter_Book() {
	six := func() time.Time { return time.Date(2026, 5, 4, 6, 0, 0, 0, time.UTC) }
	store := memstore.New(&memstore.Options{Now: six}) // goredisstore.New(client, nil) for a fleet
	limiter, err := sash.New(store, nil, sash.PerHour(2))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"sales", "stock", "taxes", "trends", "visits"} { // each in a process of its own
		r, err := limiter.Book(context.Background(), "reports", 1, 90*time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		if res := r.Result(); r.Allowed() {
			fmt.Println(name, "starts at", res.At.UTC().Format(time.TimeOnly))
		} else {
			fmt.Println(name, "would start in", res.RetryAfter)
		}
		// Then r.Wait(ctx) sleeps until the start, and gives the place back if ctx ends.
	}
	// Output:
	// sales starts at 06:00:00
	// stock starts at 06:00:00
	// taxes starts at 07:00:00
	// trends starts at 07:00:00
	// visits would start in 2h0m0s
}

// Wait for a turn, or learn first when it comes.
func ExampleReservation_Wait() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	work := func(ctx context.Context, rows int64) error {
		if err := limiter.WaitN(ctx, "api", rows); err != nil { // one decision, and one sleep
			return err // ctx ended, or its deadline is nearer than the turn: nothing stays charged
		}

		r, err := limiter.Book(ctx, "reports", 1, 90*time.Minute) // or learn first when it starts
		if err != nil {
			return err
		}
		log.Printf("starts in %v", r.Delay())
		if err := r.Wait(ctx); err != nil { // refused, because it would start later than that; or ctx ended
			return err
		}
		return nil
	}
	fmt.Println(work(context.Background(), 10))
	// Output: <nil>
}
