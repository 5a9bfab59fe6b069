package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"example.com/sash/driver"
)

// lead is the least time before the first burst; with less, the next boundary is used.
const lead = 200 * time.Millisecond

// A Clock returns the time of a server.
type Clock func(context.Context) (time.Time, error)

// LiveBoundary runs the boundary proof in real time, on a server's clock. It waits for a real boundary, and takes 2 to 13
// seconds. It uses a key of its own, which it removes. It calls say with messages about its progress.
func LiveBoundary(ctx context.Context, store driver.Store, now Clock, say func(format string, args ...any)) (Boundary, error) {
	key := "boundary-" + rand.Text()
	defer forget(ctx, store, key)
	start, err := now(ctx)
	if err != nil {
		return Boundary{}, fmt.Errorf("reading the server's time: %w", err)
	}
	at := start.Add(boundaryMargin + lead).Truncate(boundaryWindow).Add(boundaryWindow)
	say("The boundary is %s on the server's clock, in %v.", at.UTC().Format("15:04:05"), at.Sub(start).Round(100*time.Millisecond))
	wait := func(ctx context.Context, offset time.Duration) error {
		if err := until(ctx, now, at.Add(offset)); err != nil {
			return err
		}
		say("%v %s the boundary: %d calls at once for each of %d algorithms.", offset.Abs(), side(offset), boundaryUnits, len(order))
		return nil
	}
	// A burst must be short: within half a second a counter or a GCRA has room again.
	check := func(decided time.Time, offset time.Duration) error {
		if late := decided.Sub(at.Add(offset)); late < 0 || late > boundaryMargin/2 {
			return fmt.Errorf("a call of the burst %v %s the boundary was decided %v late; try again, closer to the server", offset.Abs(), side(offset), late)
		}
		return nil
	}
	return boundary(ctx, store, key, wait, check)
}

func side(offset time.Duration) string {
	if offset < 0 {
		return "before"
	}
	return "after"
}

// until sleeps until a server's clock has reached an instant. It uses the local clock only to sleep, so the two clocks may
// differ.
func until(ctx context.Context, now Clock, instant time.Time) error {
	for {
		at, err := now(ctx)
		if err != nil {
			return fmt.Errorf("reading the server's time: %w", err)
		}
		left := instant.Sub(at)
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// forget removes the demonstration's keys. They also expire by themselves, so it ignores errors.
func forget(ctx context.Context, store driver.Store, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, algorithm := range order {
		if limiter, err := boundaryLimiter(store, algorithm); err == nil {
			_ = limiter.Reset(ctx, key)
		}
	}
}
