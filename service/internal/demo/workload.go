package demo

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// The workload's figures: see the package comment. Times are seconds.
const (
	workloadStart      = 150.0
	workloadCalls      = 150
	fetchesPerSecond   = 30.0
	paceTime           = 2.0
	fixedSecondPhase   = 270.0
	neverStopsPeriod   = 0.1
	neverStopsDuration = 3000 // seconds: a multiple of both windows
)

// Workload is the outcome of the workload under both limits.
type Workload struct {
	Fixed   Side `json:"fixed"`
	Sliding Side `json:"sliding"`
	// Saved is how many seconds earlier the sliding side ends.
	Saved float64 `json:"saved"`
}

// A Side is the workload under one limit.
type Side struct {
	Limit     string `json:"limit"`
	Algorithm string `json:"algorithm"`
	// Start and End are when the client began and when its last call ended, in seconds.
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	// Admitted and Refusals count calls.
	Admitted int     `json:"admitted"`
	Refusals int     `json:"refusals"`
	Phases   []Phase `json:"phases"`
	// NeverStops is the calls per minute that a caller gets that calls ten times a second for 3,000 s.
	NeverStops float64 `json:"never_stops_per_minute"`
}

// A Phase is a stretch of the client's work.
type Phase struct {
	Name  string  `json:"name"`
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	// Admitted and Refusals count calls.
	Admitted int `json:"admitted"`
	Refusals int `json:"refusals"`
	// Attempts are the instants at which calls were made.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// An Attempt is calls made at one instant.
type Attempt struct {
	At       float64 `json:"at"`
	Wanted   int     `json:"wanted"`
	Admitted int     `json:"admitted"`
	Refused  int     `json:"refused"`
	// RetryAfter is the retry time of the refusals, in seconds; 0 without refusals.
	RetryAfter float64 `json:"retry_after"`
}

// RunWorkload runs the workload in virtual time.
func RunWorkload(ctx context.Context) (Workload, error) {
	fixed, err := underLimit(ctx, sash.FixedWindow, sash.PerMinute(60), fixedSecondPhase)
	if err != nil {
		return Workload{}, err
	}
	sliding, err := underLimit(ctx, sash.SlidingLog, sash.Every(300, 300*time.Second), 0)
	if err != nil {
		return Workload{}, err
	}
	return Workload{Fixed: fixed, Sliding: sliding, Saved: fixed.End - sliding.End}, nil
}

// underLimit runs the workload under one limit; the second phase starts no earlier than notBefore.
func underLimit(ctx context.Context, algorithm sash.Algorithm, limit sash.Limit, notBefore float64) (Side, error) {
	c, err := newClient(algorithm, limit)
	if err != nil {
		return Side{}, err
	}
	burst, err := c.burst(ctx)
	if err != nil {
		return Side{}, err
	}
	paced, err := c.paced(ctx, max(burst.End, notBefore))
	if err != nil {
		return Side{}, err
	}
	rate, err := neverStops(ctx, algorithm, limit)
	return Side{
		Limit:      limit.String(),
		Algorithm:  algorithm.String(),
		Start:      burst.Start,
		End:        paced.End,
		Admitted:   burst.Admitted + paced.Admitted,
		Refusals:   burst.Refusals + paced.Refusals,
		Phases:     []Phase{burst, paced},
		NeverStops: rate,
	}, err
}

// A client is one caller with its own store.
type client struct {
	clock   *clock
	limiter *sash.Limiter
}

func newClient(algorithm sash.Algorithm, limit sash.Limit) (*client, error) {
	virtual := &clock{}
	store := memstore.New(&memstore.Options{Now: virtual.read})
	limiter, err := sash.New(store, &sash.Options{Algorithm: algorithm}, limit)
	return &client{virtual, limiter}, err
}

// burst is the first phase: all calls at once, and refused calls again at their retry time.
func (c *client) burst(ctx context.Context) (Phase, error) {
	phase := Phase{Name: "burst", Start: workloadStart}
	at := workloadStart
	for left := workloadCalls; left > 0; {
		c.clock.set(at)
		try := Attempt{At: at, Wanted: left}
		for range try.Wanted {
			res, err := c.limiter.Allow(ctx, "client")
			if err != nil {
				return Phase{}, err
			}
			if res.Allowed {
				try.Admitted++
			} else {
				try.Refused++
				try.RetryAfter = res.RetryAfter.Seconds()
			}
		}
		phase.Attempts = append(phase.Attempts, try)
		phase.Admitted += try.Admitted
		phase.Refusals += try.Refused
		phase.End = at + float64(try.Admitted)/fetchesPerSecond
		left -= try.Admitted
		at += try.RetryAfter
	}
	return phase, nil
}

// paced is the second phase: one call every two seconds.
func (c *client) paced(ctx context.Context, start float64) (Phase, error) {
	phase := Phase{Name: "paced", Start: start}
	at := start
	for range workloadCalls {
		for {
			c.clock.set(at)
			res, err := c.limiter.Allow(ctx, "client")
			if err != nil {
				return Phase{}, err
			}
			if res.Allowed {
				break
			}
			phase.Refusals++
			at += res.RetryAfter.Seconds()
		}
		phase.Admitted++
		at += paceTime
	}
	phase.End = at
	return phase, nil
}

// neverStops returns the calls per minute that a caller gets that ignores refusals.
func neverStops(ctx context.Context, algorithm sash.Algorithm, limit sash.Limit) (float64, error) {
	c, err := newClient(algorithm, limit)
	if err != nil {
		return 0, err
	}
	admitted := 0
	for i := range int(neverStopsDuration / neverStopsPeriod) {
		c.clock.set(float64(i) * neverStopsPeriod)
		res, err := c.limiter.Allow(ctx, "client")
		if err != nil {
			return 0, fmt.Errorf("a caller that never stops: %w", err)
		}
		if res.Allowed {
			admitted++
		}
	}
	return float64(admitted) / neverStopsDuration * 60, nil
}
