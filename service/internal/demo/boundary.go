package demo

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// The boundary proof is one full burst a second before a boundary of the fixed window and another a second after it. The
// two are two seconds apart, so both lie in one window of ten, which may admit at most 50 units.
const (
	boundaryUnits  = 50
	boundaryWindow = 10 * time.Second
	boundaryMargin = time.Second
)

// Boundary is the outcome of the boundary proof.
type Boundary struct {
	// Limit is the limit that every algorithm enforces.
	Limit string `json:"limit"`
	// Results has one element per algorithm.
	Results []BoundaryResult `json:"results"`
}

// A BoundaryResult is what one algorithm admitted.
type BoundaryResult struct {
	Algorithm string `json:"algorithm"`
	// Accepted is the units admitted in both bursts together, of 100.
	Accepted int64 `json:"accepted"`
	// Before and After count the units of the burst before and after the boundary.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// order is the order of results: algorithms that fail, that hold, and that nearly fail.
var order = []sash.Algorithm{sash.FixedWindow, sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets, sash.SlidingCounter, sash.GCRA}

func boundaryLimiter(store driver.Store, algorithm sash.Algorithm) (*sash.Limiter, error) {
	opts := &sash.Options{Prefix: "sash-demo", Algorithm: algorithm}
	if algorithm == sash.SlidingBuckets {
		opts.Resolution = 100 * time.Millisecond
	}
	return sash.New(store, opts, sash.Every(boundaryUnits, boundaryWindow))
}

// VirtualBoundary runs the boundary proof in virtual time.
func VirtualBoundary(ctx context.Context) (Boundary, error) {
	virtual := &clock{}
	store := memstore.New(&memstore.Options{Now: virtual.read})
	return boundary(ctx, store, "boundary", func(_ context.Context, offset time.Duration) error {
		virtual.set((boundaryWindow + offset).Seconds())
		return nil
	}, func(time.Time, time.Duration) error { return nil })
}

// boundary runs the proof on all algorithms concurrently. Wait returns at an offset from the boundary. Check gets the
// store's time of every decision and the intended offset.
func boundary(ctx context.Context, store driver.Store, key string, wait func(context.Context, time.Duration) error, check func(time.Time, time.Duration) error) (Boundary, error) {
	limiters := make([]*sash.Limiter, len(order))
	out := Boundary{Limit: sash.Every(boundaryUnits, boundaryWindow).String()}
	for i, algorithm := range order {
		limiter, err := boundaryLimiter(store, algorithm)
		if err != nil {
			return Boundary{}, err
		}
		limiters[i] = limiter
		out.Results = append(out.Results, BoundaryResult{Algorithm: algorithm.String()})
	}
	for _, offset := range []time.Duration{-boundaryMargin, boundaryMargin} {
		if err := wait(ctx, offset); err != nil {
			return Boundary{}, err
		}
		accepted, err := burst(ctx, limiters, key, func(at time.Time) error { return check(at, offset) })
		if err != nil {
			return Boundary{}, err
		}
		for i := range out.Results {
			r := &out.Results[i]
			r.Accepted += accepted[i]
			if offset < 0 {
				r.Before = accepted[i]
			} else {
				r.After = accepted[i]
			}
		}
	}
	return out, nil
}

// callers is the number of concurrent calls of one burst on one algorithm.
const callers = 10

// burst sends a full limit's calls to all limiters concurrently and returns how many each admitted.
func burst(ctx context.Context, limiters []*sash.Limiter, key string, check func(time.Time) error) ([]int64, error) {
	accepted := make([]atomic.Int64, len(limiters))
	failed := make(chan error, len(limiters)*callers)
	var all sync.WaitGroup
	for i, limiter := range limiters {
		for range callers {
			all.Go(func() {
				for range boundaryUnits / callers {
					res, err := limiter.Allow(ctx, key)
					if err == nil {
						err = check(res.At)
					}
					if err != nil {
						failed <- fmt.Errorf("%s: %w", order[i], err)
						return
					}
					if res.Allowed {
						accepted[i].Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	close(failed)
	out := make([]int64, len(limiters))
	for i := range accepted {
		out[i] = accepted[i].Load()
	}
	return out, <-failed
}
