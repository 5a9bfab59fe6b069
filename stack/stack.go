// Package stack puts the decorators of a store in their order, in one call.
//
//	store, err := stack.New(goredisstore.New(client, nil), nil)
//
// A call passes them from left to right:
//
//	caller --> failover --> denial cache --> lease --> group commit --> store
//
// Each decorator answers the calls that it can, and passes on the rest:
//
//   - failover's budget covers everything behind it, and it chooses its mode by the cost of a single call.
//   - The denial cache answers refused callers from memory, also under limits that are not leased: see lease.New.
//   - lease, only with [Options].Lease, spends units that the store charged in advance. Calls from a lease wait for no batch.
//   - Group commit decides concurrent calls in one round trip.
//
// By default limits are exact, and a call without an answer within 50 ms is an error. A call that is ready to
// wait has a second, and 5 s while the store answers other calls.
//
// # When not to use it
//
// A store in memory needs no decorator. Put decorators together by hand, in this order, with [DenialCache] and [GroupCommit], for
// leases that the processes of a region share (lease.Shared), for several leases over one group commit, or without it.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/stack/internal/coalesce"
	"example.com/sash/stack/internal/denials"
)

// Options for a Store. The zero value answers with an error when the store fails, and leases nothing.
type Options struct {
	// Failover says how calls are answered while the store is unavailable. The zero value is the default of failover, with
	// two differences: a nil Classify is the one for Redis, and a nil Local is a new memstore if Modes has the mode Local.
	Failover failover.Options
	// MaxAge is the longest time for which a refusal is kept in memory, and so the longest until a Reset by another process
	// takes effect here. Zero is a second.
	MaxAge time.Duration
	// Lease is the longest lease: see lease.New. A caller that never stops then gets slightly less than its limit, and every
	// process that shares the limits needs the same value, of four round trips to the store or more. Zero is no leases, and
	// limits are exact.
	Lease time.Duration
}

// A Store is another store behind failover, the denial cache, leases and group commit. It is safe for concurrent use. It has the
// methods of failover.Store, such as With for limits with other failure modes and State for a health check.
type Store struct {
	*failover.Store
	leases *lease.Store // nil without leases
}

// New returns the stack over a store, which it does not own. Pass a store without these decorators, such as goredisstore.New
// returns. A nil opts is the default. New does no I/O. The error says what is wrong.
func New(store driver.Store, opts *Options) (*Store, error) {
	if driver.Nil(store) {
		return nil, errors.New("stack: New needs a store to decide with, such as goredisstore.New(client, nil)")
	}
	if err := bare(store); err != nil {
		return nil, err
	}
	o := *cmp.Or(opts, &Options{})
	if o.MaxAge < 0 {
		return nil, errors.New("stack: MaxAge must not be negative; zero is a second")
	}
	var s Store
	behind := GroupCommit(store)
	var err error
	if o.Lease != 0 {
		if s.leases, err = lease.New(behind, o.Lease); err != nil {
			return nil, err
		}
		behind = s.leases
	}
	behind = denials.New(behind, o.MaxAge)
	if o.Failover.Classify == nil {
		o.Failover.Classify = failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured)
	}
	if o.Failover.Local == nil && slices.ContainsFunc(o.Failover.Modes.Rules, func(r failover.Rule) bool { return r.Mode == failover.Local }) {
		o.Failover.Local = memstore.New(nil)
	}
	if s.Store, err = failover.New(behind, &o.Failover); err != nil {
		return nil, err
	}
	return &s, nil
}

// GroupCommit returns a store that decides concurrent calls of a process together, in one round trip: calls of a key as one
// call, and calls of up to 16 keys at once, if the store can. There is no timer. Each call gets the same answer as by itself.
// GroupCommit panics if next is nil.
//
// Do not use it over a proxy that sends a script with keys of several servers to the server of the first key.
func GroupCommit(next driver.Store) driver.Store { return coalesce.New(next) }

// DenialCache returns a store that answers a refused caller from memory while the refusal holds, for a second at most. It keeps
// 100,000 keys. It refuses no call that the store would admit, except in that second after a reset by another process or a
// loss of state. It panics if next is nil.
func DenialCache(next driver.Store) driver.Store { return denials.New(next, 0) }

func bare(store driver.Store) error {
	const most = 64 // in a chain: a store that unwraps to itself would be endless
	for at := range most {
		switch store.(type) {
		case *failover.Store, *Store, *denials.Store, *lease.Store, *coalesce.Store:
			return fmt.Errorf("stack: decorator %d of the store is a %T, which New adds by itself: give it the store behind that. "+
				"The order is failover, denial cache, lease, group commit, store", at+1, store)
		}
		d, ok := store.(interface{ Unwrap() driver.Store })
		if !ok {
			break
		}
		store = d.Unwrap()
	}
	return nil
}

// Close ends the work of a program that stops: it writes local admissions to the store, and then gives back leases. It goes
// on until the context ends. The error says how much stays uncounted, or charged until it leaves the window. Call Close before
// you close the store's client, and make no calls meanwhile: a closed Store still decides, and leases that it fetches then
// are not given back.
func (s *Store) Close(ctx context.Context) error {
	err := s.Store.Close(ctx)
	if s.leases != nil {
		err = errors.Join(err, s.leases.Release(ctx))
	}
	return err
}
