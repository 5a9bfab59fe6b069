package outgoing

import (
	"context"
	"slices"
	"time"

	"example.com/sash/driver"
)

// arriving is the store as the limiter sees it. Behind it windows are longer by the spread of the ways to the API, so that
// limits hold where requests arrive. Results and errors have the limits as they were configured. A settlement finds its charge by
// its time, whatever the windows; the other powers are not used.
type arriving struct {
	driver.Passthrough
	spreads *spreads
}

// Decide implements [driver.Store].
func (a *arriving) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return a.Next.Decide(ctx, a.longer(req))
}

// DecideAll implements [driver.MultiStore].
func (a *arriving) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	return a.Passthrough.DecideAll(ctx, a.allLonger(reqs))
}

// DecideAny implements [driver.Chooser].
func (a *arriving) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	return a.Passthrough.DecideAny(ctx, a.allLonger(reqs))
}

func (a *arriving) allLonger(reqs []driver.Request) []driver.Request {
	longer := make([]driver.Request, len(reqs))
	for i, req := range reqs {
		longer[i] = a.longer(req)
	}
	return longer
}

// longer returns the request under windows that are longer by the spread. Algorithms that approximate have no bound to keep,
// and calendar periods end when they end.
func (a *arriving) longer(req driver.Request) driver.Request {
	if !req.Policy.Algorithm.Exact() {
		return req
	}
	policy := *req.Policy
	policy.Limits = slices.Clone(policy.Limits)
	for i := range policy.Limits {
		if l := &policy.Limits[i]; l.Window > 0 {
			l.Window += a.spreads.of(req.Key, time.Duration(l.Window)*time.Microsecond).Microseconds()
		}
	}
	req.Policy = &policy
	return req
}
