// Package failover keeps answers coming when a store does not: within a budget of time, and by a policy
// that was chosen beforehand.
//
//	                    in time
//	call --> breaker --> store ------------------------> its answer
//	            |          | failed, late, too many calls
//	            | down     v
//	            +------> policy, by cost --> Open    admitted, not counted
//	                                     --> Local   this process decides over its share
//	                                     --> Closed  an error that is sash.ErrUnavailable
//
// A [Store] stands before another store and is one itself. Its answer comes within the budget whatever
// the other one does, also when that does not heed contexts. After a few failures in a row the store
// counts as down and is no longer asked, but for one call at a time: a caller's own decision, which finds
// out whether the store is back.
//
// In mode Local a store in memory holds each subject to floor(units / instances) of every limit. It knows
// what this process admitted before, because admissions of the other store are charged to it as well: a
// switch does not hand out a fresh limit. When the other store is back, what was admitted locally is
// charged to it, in the background. No call is charged to one store twice: where it is not known whether
// the other store charged a call, it is not charged again.
//
// # Before which stores
//
// A Store of this package is the outermost decorator:
//
//	failover --> denials --> lease --> coalesce --> a store with a network in between
//
// So the budget covers all that a call waits for, and the policy sees the cost of the call itself. Behind
// coalesce it would see the sum of a batch, behind a lease the cost of a block, and answer for all of them at
// once. [coalesce] therefore joins no calls when a Store is behind it, and [lease] refuses to be made. What
// the others answer from memory is not taken for a sign that the store works.
//
// # Parts
//
// Behind one breaker a cluster of which some nodes hang is lost to everybody: with a third of the keys hanging, from
// none (4 callers) to 95 % (16 callers and more) of the calls to healthy keys were answered by policy in virtual time.
// Calls to nodes that work keep closing the breaker and calls to those that do not keep opening it. So a store can
// have parts ([Options].Part) with a breaker each. The calls under way are bounded for all together.
//
// [coalesce]: https://pkg.go.dev/example.com/sash/coalesce
// [lease]: https://pkg.go.dev/example.com/sash/lease
package failover

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// Defaults of Options.
const (
	DefaultBudget      = 50 * time.Millisecond
	DefaultMaxInFlight = 1024
)

// Options for a Store. The zero value answers with an error when the store fails, within 50 ms.
type Options struct {
	// Modes say what to answer when the store is unavailable. The zero Modes are Closed.
	Modes Modes
	// Budget is the most time that the store gets for one call. Zero is DefaultBudget. A caller whose
	// own deadline is shorter gets the error of its context, and the store is not blamed: so it should be
	// shorter than the deadlines of callers.
	Budget time.Duration
	// MaxInFlight is the most calls that the store works on at once, those included that nobody waits for
	// any more. At that number the store counts as unavailable. Zero is DefaultMaxInFlight.
	MaxInFlight int
	// Local decides in mode Local, such as memstore.New(nil). It must not block, and nothing else may use
	// it. Nil when no rule says Local.
	Local LocalStore
	// Instances returns how many processes share the limits. Below 1 means that it is not known, and then
	// mode Local admits nothing. It is called for every decision and must not block. Nil means 1.
	Instances func() int
	// Classify says what kind of failure an error of the store is. Nil tells connections that could not
	// be made (Unsent) from everything else (Unknown). What may have been charged must be Unknown, however
	// wrong a setting is: for Redis ask redisstore.Uncharged before redisstore.Misconfigured.
	Classify func(error) Kind
	// Parts is how many parts the store has that can fail by themselves, such as the nodes of a cluster, and Part
	// says which one of them holds a subject: from 0 to Parts-1. Each part has a breaker of its own, so
	// that subjects of the others are still decided while it is down. Zero is one part. Part is called for every
	// decision, must not block, and always says the same of a subject.
	Parts int
	Part  func(key string, policy *driver.Policy) int
	// OnChange is told when the store goes down, is probed, and comes back, as State tells it; cause is nil when it is up. It
	// is called by the goroutine of a decision and must not block. Two changes can be told at once; State
	// knows the last.
	OnChange func(now State, cause error)
	// OnError is told of every failure of the store, which are few while it is down. Misconfigured ones
	// do not mend by themselves: somebody should know. It must not block.
	OnError func(err error, kind Kind)
}

// A Kind is a kind of failure.
type Kind uint8

// The kinds of failure.
const (
	Unknown       Kind = iota // the store failed; whether it charged is not known
	Unsent                    // the store failed, and certainly did not charge
	Misconfigured             // the store refused to work for us, such as for a wrong password, and did not charge
)

// Why a store was not asked or did not answer, for errors.Is on Result.Cause and on errors.
var (
	// ErrBudget means that no answer came within the budget.
	ErrBudget = errors.New("failover: no answer within the budget")
	// ErrBusy means that MaxInFlight calls were under way.
	ErrBusy = errors.New("failover: too many calls are under way")
	// ErrDown means that the store failed before and is not asked for now.
	ErrDown = errors.New("failover: the store is down")
)

// A Store answers for another store when that is unavailable. It is safe for concurrent use and holds
// nothing that has to be closed: a goroutine of its own runs only while there is something to charge to a
// store that has come back. It implements [driver.MultiStore], [driver.Deduplicator], [driver.Settler],
// [driver.Resetter] and [driver.Cooler]; what the other store cannot do is [driver.ErrUnsupported].
type Store struct {
	*guard
	modes Modes
}

var (
	_ driver.Substitute   = (*Store)(nil)
	_ driver.MultiStore   = (*Store)(nil)
	_ driver.Deduplicator = (*Store)(nil)
	_ driver.Settler      = (*Store)(nil)
	_ driver.Resetter     = (*Store)(nil)
)

// New returns a store that answers for another, which it does not own. A nil opts is the default. New does no
// I/O, so a process can start while its store is down. The error says which option is wrong. New panics if
// store is nil.
func New(store driver.Store, opts *Options) (*Store, error) {
	if store == nil {
		panic("failover: New needs a store to answer for, such as goredisstore.New(client, nil)")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Budget < 0 || o.MaxInFlight < 0 || o.Parts < 0 {
		return nil, errors.New("failover: Budget, MaxInFlight and Parts must not be negative")
	}
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	g := &guard{store: store, budget: o.Budget, most: int64(o.MaxInFlight), classify: o.Classify, onError: o.OnError}
	if g.classify == nil {
		g.classify = func(error) Kind { return Unknown }
	}
	g.divide(&o)
	g.enter = (*breaker).enter
	if o.Local != nil {
		g.local = newLocal(o.Local, o.Instances)
	}
	return (&Store{guard: g}).With(o.Modes)
}

// With returns a store with other modes, for other limits. It shares everything else: the state of
// the store, the calls under way, and what was admitted locally.
func (s *Store) With(modes Modes) (*Store, error) {
	if err := modes.validate(s.local != nil); err != nil {
		return nil, err
	}
	return &Store{guard: s.guard, modes: modes}, nil
}

// Unwrap implements [driver.Decorator].
func (s *Store) Unwrap() driver.Store { return s.store }

// Substitutes implements [driver.Substitute].
func (s *Store) Substitutes() {}

// State returns whether the store is up, down or being probed: up when every part is, and down when any part is.
func (s *Store) State() State { return s.now() }

// Stats are what a Store has under way and what it could not do.
type Stats struct {
	// InFlight is the number of calls that the store works on.
	InFlight int
	// Backlog is the number of subjects, and of calls with an ID, with local charges that the store does not
	// know of yet.
	Backlog int
	// Written counts the units admitted locally that were charged to the store later.
	Written int64
	// Lost counts the units admitted locally that the store was not told of and will not be: because
	// there were too many subjects, or the store failed while it was told.
	Lost int64
	// Doubtful counts the units admitted locally for calls that the store may have charged or not. They are
	// not charged again, unless they have an ID.
	Doubtful int64
}

// Stats returns what is under way and what could not be done, of all stores that share it.
func (s *Store) Stats() Stats {
	stats := Stats{InFlight: int(s.slots.Load())}
	if l := s.local; l != nil {
		stats.Backlog = int(l.backlog.size.Load())
		stats.Written, stats.Lost, stats.Doubtful = l.written.Load(), l.lost.Load(), l.doubtful.Load()
	}
	return stats
}

// guard is what all stores share that With made of one.
type guard struct {
	store    driver.Store
	budget   time.Duration
	most     int64
	classify func(error) Kind
	onError  func(error, Kind)
	slots    atomic.Int64 // calls under way
	breakers []breaker    // of each part
	partOf   func(key string, policy *driver.Policy) int
	enter    func(*breaker) (ticket, error) // breaker.enter; tests put a wrong one here
	local    *local                         // nil without a local store
}

// Decide implements [driver.Store].
func (s *Store) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	out := ask(ctx, s.guard, s.part(req), decided, func(ctx context.Context) (driver.Answer, error) { return s.store.Decide(ctx, req) })
	if !out.failed {
		if out.err == nil {
			s.mirror(ctx, "", req, out.value.Allowed())
			s.repay()
		}
		return out.value, out.err
	}
	results, err := s.answer(ctx, "", []driver.Request{req}, out.err)
	if err != nil {
		return driver.Answer{}, err
	}
	owe(s.guard, &out, []driver.Request{req}, results, func(res driver.Answer) bool { return charges(req, res.Allowed()) })
	return results[0], nil
}

// DecideAll implements [driver.MultiStore]. The strictest of the policy's modes for its requests counts.
func (s *Store) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	store, ok := s.store.(driver.MultiStore)
	if !ok {
		if _, settles := s.store.(driver.Settler); settles {
			return nil, driver.ErrApart // the limiter charges one by one
		}
		return nil, driver.ErrUnsupported
	}
	out := ask(ctx, s.guard, s.part(reqs[0]), nil, func(ctx context.Context) ([]driver.Answer, error) { return store.DecideAll(ctx, reqs) })
	if !out.failed {
		for _, req := range reqs[:len(out.value)] {
			s.mirror(ctx, "", req, admitted(out.value))
		}
		s.repay()
		return out.value, out.err
	}
	results, err := s.answer(ctx, "", reqs, out.err)
	if err == nil {
		owe(s.guard, &out, reqs, results, func(late []driver.Answer) bool {
			return admitted(late) || reqs[0].Policy.CountRefused
		})
	}
	return results, err
}

// admitted reports whether a decision over several subjects admitted them: each result tells of its own.
func admitted(results []driver.Answer) bool {
	for i := range results {
		if !results[i].Allowed() {
			return false
		}
	}
	return true
}

// charges reports whether a store that admitted a request, or did not, has charged it.
func charges(req driver.Request, allowed bool) bool {
	return req.Cost > 0 && (allowed || req.Policy.CountRefused)
}

// mirror charges locally what the store charged, where the policy may decide locally one day: once for an ID
// that is not empty.
func (s *Store) mirror(ctx context.Context, id string, req driver.Request, allowed bool) {
	if s.local != nil && s.modes.local() && charges(req, allowed) {
		s.local.mirror(ctx, id, req)
	}
}
