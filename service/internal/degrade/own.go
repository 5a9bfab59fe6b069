package degrade

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"example.com/sash/denials"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/lease"
)

// An ownShare is that of this region in limits over all regions, for rules with on_unavailable: local.
type ownShare struct {
	lease.Own
	budget time.Duration // of the region's Redis
	log    *slog.Logger

	mu    sync.Mutex
	known string // guarded by mu: "ok", or why there is none; empty before the first look
}

var errOwnHomes = errors.New("on_unavailable: local beside scope: global is an own share of this region, on which regions agree at their only home, " +
	"and there are several homes: use open or closed")

var errNoOwn = errors.New("on_unavailable: local beside scope: global is an own share of this region: give --region with its name and --regions with their number")

// open makes the store of a place with an own share. A call has time for the home, and then for the own share.
func (o *ownShare) open(home *far, redis driver.Store, longest time.Duration, opts *failover.Options) (*lease.Store, error) {
	if o == nil {
		return nil, errNoOwn
	}
	own := o.Own
	near, err := denials.New(&punctual{driver.Passthrough{Next: redis}, o.budget}, nil)
	if err != nil {
		return nil, err
	}
	own.Store = near
	opts.Budget = home.patience + 3*o.budget // the leases, the own share, and whether it has been agreed on
	return lease.Shared(home.store, home.holder, longest, &lease.Options{Own: &own, Within: home.patience})
}

// state returns "ok", or why there is no own share. It is empty for a nil ownShare, and before the first look.
func (o *ownShare) state() string {
	if o == nil {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known
}

// note logs whether there is an own share when that changes.
func (o *ownShare) note(why error) {
	now := "ok"
	if why != nil {
		now = why.Error()
	}
	o.mu.Lock()
	before := o.known
	o.known = now
	o.mu.Unlock()
	switch {
	case now == before:
	case why == nil:
		o.log.Info("this region has its own share of limits over all regions", "region", o.Region, "regions", o.Regions, "percent", o.Percent)
	default:
		o.log.Warn("this region has no own share of limits over all regions: while it is cut off, on_unavailable: local answers as closed", "region", o.Region, "error", why)
	}
}

// agreeing is how often instances look whether the region has an own share. Few of them ask the home.
const agreeing = 5 * time.Second

// agree keeps the agreement of regions, until the context ends.
func (s *places) agree(ctx context.Context) {
	if s.own == nil {
		return
	}
	ticker := time.NewTicker(agreeing)
	defer ticker.Stop()
	for {
		for p, placed := range s.placed() {
			if p.Own {
				if why := placed.leases.Agree(ctx); ctx.Err() == nil {
					s.own.note(why)
				}
				break // all places have one agreement
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// punctual is the region's Redis with its budget for each decision on the own share.
type punctual struct {
	driver.Passthrough
	budget time.Duration
}

// Decide implements [driver.Store].
func (p *punctual) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	return p.Passthrough.Decide(ctx, req)
}

// Swap implements [driver.Swapper].
func (p *punctual) Swap(ctx context.Context, key string, w driver.Swap) (driver.Swapped, error) {
	ctx, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	return p.Passthrough.Swap(ctx, key, w)
}
