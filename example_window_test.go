package sash_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

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
		fmt.Printf("%-15v %d before the boundary, %2d after it\n", limiter.Algorithm(), before, after)
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
