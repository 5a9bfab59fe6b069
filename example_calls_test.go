package sash_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// A request counts for its user and for all users of the tenant. If either has no room, neither is charged.
func ExampleLimiter_AllowAll() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	allow := func(user string) sash.Result {
		res, err := limiter.AllowAll(context.Background(), // KeyTogether: one step on a Redis Cluster too
			sash.Subject{Key: sash.KeyTogether("t1", "user", user), Cost: 1, Limits: []sash.Limit{sash.PerMinute(2)}},
			sash.Subject{Key: sash.KeyTogether("t1", "tenant"), Cost: 1}, // the limiter's own limits
		)
		if err != nil {
			log.Fatal(err)
		}
		return res
	}
	for _, user := range []string{"ann", "ann", "ann", "bob"} {
		res := allow(user)
		if by, refused := res.RefusedBy(); refused {
			fmt.Println(user, "is refused by", by.Key, by.Limit.Name)
			continue
		}
		fmt.Println(user, "is allowed, tenant has", res.Limits()[1].Remaining)
	}
	// Output:
	// ann is allowed, tenant has 59
	// ann is allowed, tenant has 58
	// ann is refused by {t1}:user:ann 2/1m
	// bob is allowed, tenant has 57
}

// A job is charged to its user and to a shared pool at its highest cost. Each charge is settled by itself.
func ExampleLimiter_Reserve_all() {
	ctx := context.Background()
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	pool := []sash.Subject{{Key: "pool", Cost: 30}}
	held, err := limiter.Reserve(ctx, "user:42", 30, &sash.ReserveOptions{All: pool})
	if err != nil {
		log.Fatal(err)
	}
	if !held.Allowed() {
		log.Fatal("retry after ", held.Result().RetryAfter) // nothing is charged
	}
	defer held.Cancel(ctx)                           // unless it is settled
	if err := held.Settle(ctx, 12, 12); err != nil { // or each of held.Parts by itself
		log.Fatal(err)
	}
	left, err := limiter.Peek(ctx, "pool")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(left.Remaining)
	// Output: 88
}

// A worker handles each message at least once. The message's ID keeps a second delivery from being charged again.
func ExampleLimiter_AllowOnce() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerDay(10))
	if err != nil {
		log.Fatal(err)
	}
	for _, message := range []string{"m-1", "m-2", "m-1"} {
		res, err := limiter.AllowOnce(context.Background(), message, "mailbox:7", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(message, res.Allowed, res.Remaining)
	}
	// Output:
	// m-1 true 9
	// m-2 true 8
	// m-1 true 8
}

// A user who pays for another plan keeps what is charged already.
func ExampleLimiter_With() {
	ctx := context.Background()
	free, err := sash.New(memstore.New(nil), nil, sash.PerHour(10))
	if err != nil {
		log.Fatal(err)
	}
	paid, err := free.With(sash.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	for _, plan := range []*sash.Limiter{free, free, paid} {
		res, err := plan.Allow(ctx, "user:42")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Remaining)
	}
	// Output:
	// 9
	// 8
	// 997
}

// A crawler waits for its turn, and gives up at once if its turn is too late.
func ExampleLimiter_Wait() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.Every(2, 20*time.Millisecond), sash.PerHour(3))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for page := 1; ; page++ {
		err := limiter.Wait(ctx, "site:example.org")
		var limited *sash.LimitedError
		if errors.As(err, &limited) {
			fmt.Println("page", page, "has to wait longer than five minutes, for", limited.Limit.Name)
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("page", page)
	}
	// Output:
	// page 1
	// page 2
	// page 3
	// page 4 has to wait longer than five minutes, for 3/1h
}

// Cron jobs share a quota of two reports an hour. Each learns when it starts; one that would start too late leaves it to
// the next run.
func ExampleLimiter_Reserve_waitUpTo() {
	six := func() time.Time { return time.Date(2026, 5, 4, 6, 0, 0, 0, time.UTC) }
	store := memstore.New(&memstore.Options{Now: six}) // goredisstore.New(client, nil) for a fleet
	limiter, err := sash.New(store, nil, sash.PerHour(2))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"sales", "stock", "taxes", "trends", "visits"} { // each in a process of its own
		r, err := limiter.Reserve(context.Background(), "reports", 1, &sash.ReserveOptions{WaitUpTo: 90 * time.Minute})
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

		r, err := limiter.Reserve(ctx, "reports", 1, &sash.ReserveOptions{WaitUpTo: 90 * time.Minute}) // or learn first when it starts
		if err != nil {
			return err
		}
		log.Printf("starts in %v", r.StartsIn())
		if err := r.Wait(ctx); err != nil { // it would start later than that, or ctx ended
			return err
		}
		return nil
	}
	fmt.Println(work(context.Background(), 10))
	// Output: <nil>
}
