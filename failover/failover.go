package failover

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// Defaults of Options.
const (
	DefaultBudget      = 50 * time.Millisecond
	DefaultBlip        = 200 * time.Millisecond
	DefaultMaxInFlight = 1024
)

// Options for a Store. The zero value answers with an error when the store fails, within 50 ms.
type Options struct {
	// Modes say what to answer when the store is unavailable. The zero Modes are Closed.
	Modes Modes
	// OpenPerSecond is the most units that mode Open lets through in any second, for all limits and keys of this process together, to
	// protect what is behind the limits. Beyond it the answer is that of Closed, with ErrCeiling. A call over several subjects counts
	// with its highest cost. Zero is no ceiling.
	OpenPerSecond int64
	// Budget is the most time that a call waits for the store, from its turn on. Zero is DefaultBudget. It should be shorter than the
	// deadlines of callers: a caller whose deadline comes first gets the error of its context. Only time in which this process
	// runs counts, because it may still have to read a reply. So a budget can last ten times its length, but at most a second longer.
	// A call that is ready to wait, such as [sash.Limiter.Wait], has 20 budgets, and 100 while the store answers other calls, but never
	// more than the time that it is ready to wait.
	Budget time.Duration
	// MaxInFlight is the most calls that all parts of the store work on at once, including calls whose callers have left. Further
	// calls wait for their turn. While the store answers slowly, it gets fewer calls. Zero is DefaultMaxInFlight.
	MaxInFlight int
	// Blip is how long the store may fail before it counts as down. After that, five failures take it down if it answered
	// nothing meanwhile, or if at least half of 20 calls or more failed. Zero is DefaultBlip, in which TCP resends a lost
	// packet. Set a longer one for a Redis that stalls at each fork of a large data set.
	Blip time.Duration
	// Local is the store that decides in mode Local, such as memstore.New(nil). It must not block, and nothing else may use it.
	Local driver.Store
	// Instances returns how many processes share the limits. Below 1 means unknown, and then mode Local admits
	// nothing. Instances is called for every decision and must not block. Nil means 1.
	Instances func() int
	// Classify returns the kind of failure of a store's error. With nil, a failed dial is Unsent and every other error Unknown, and units
	// admitted locally in place of an Unknown call are never charged. So set it for Redis: see ClassifyBy. If the call may have been
	// charged, the kind must be Unknown even if a setting is wrong. Rejected is for errors that the breaker should ignore, like
	// driver.ErrRejected. Of Unknown errors, the breaker counts sash.ErrUnavailable and failed connections; others are about their call.
	Classify func(error) Kind
	// Parts is the number of parts of the store that can fail on their own, such as the nodes of a cluster. Zero is one.
	// Part returns the part that holds a subject, from 0 to Parts-1, always the same for a subject. Each part has its own
	// breaker. Part is called for every decision and must not block.
	Parts int
	Part  func(key string, policy *driver.Policy) int
	// OnChange is called when State changes. cause is nil when the store is up. The goroutine of a decision calls it,
	// so it must not block. Two calls can run at once; State returns the latest state.
	OnChange func(now State, cause error)
	// OnError is called with every failure of the store, of which there are few while it is down, and with every Rejected error. A
	// Misconfigured failure does not go away by itself: report it to an operator. OnError must not block. A panic of OnError, OnChange
	// or Classify is recovered and dropped. An error about which Classify panics is Unknown.
	OnError func(err error, kind Kind)
}

// Causes of a missing answer, for errors.Is on Result.Cause and on errors.
var (
	// ErrBudget means that no answer came within the budget. The error names the servers that are silent or refuse connections, if the
	// store is a [driver.Witness], as redisstore's is. A client that tries to connect for longer than the budget hides the cause: see
	// goredisstore.Tune and goredisstore.Greet.
	ErrBudget = errors.New("failover: no answer within the budget")
	// ErrBusy means that too many calls were under way while the store was down, or while it answered none for the whole budget.
	ErrBusy = errors.New("failover: too many calls are under way")
	// ErrOverload means that the store answers, and that the call has waited in this process, which has more calls than the store answers
	// in time, for longer than a budget can last. No failure mode answers it. It is sash.ErrUnavailable. Nothing was charged, unless the
	// error is ErrBudget, too.
	ErrOverload error = overload{}
	// ErrDown means that the store failed before and gets no calls for now.
	ErrDown = errors.New("failover: the store is down")
	// ErrCeiling means that mode Open has already let OpenPerSecond units through.
	ErrCeiling = errors.New("failover: mode open lets no more through in this second")
)

type overload struct{}

// Error returns what happened and what to do.
func (overload) Error() string {
	return "sash: overload: this process has more calls than the store answers in time: try again in a second"
}

// Is reports that an overload is sash.ErrUnavailable.
func (overload) Is(target error) bool { return target == sash.ErrUnavailable }

// A Store answers for another store while that one is unavailable. It is safe for concurrent use. Only a Store with mode
// Local has to be closed: see [Store.Close]. It has goroutines of its own while local admissions wait to be written. A Store
// has the powers of the other store. An operation that needs any other returns [driver.ErrUnsupported].
type Store struct {
	*guard
	modes Modes
}

// New returns a store that answers for another store, which it does not own. A nil opts is the default. New does no I/O, so a process can
// start while its store is down. The error says which option is wrong. New panics if store is nil.
func New(store driver.Store, opts *Options) (*Store, error) {
	if driver.Nil(store) {
		panic("failover: New needs a store to answer for, such as goredisstore.New(client, nil)")
	}
	o := *cmp.Or(opts, &Options{})
	if o.Budget < 0 || o.Blip < 0 || o.MaxInFlight < 0 || o.Parts < 0 || o.OpenPerSecond < 0 {
		return nil, errors.New("failover: Budget, Blip, MaxInFlight, Parts and OpenPerSecond must not be negative")
	}
	o.Blip = cmp.Or(o.Blip, DefaultBlip)
	o.Budget = cmp.Or(o.Budget, DefaultBudget)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, DefaultMaxInFlight)
	g := &guard{
		store: store, budget: o.Budget, most: o.MaxInFlight, start: time.Now(), woke: func() {},
		classify: o.Classify, onError: o.OnError,
	}
	if o.OpenPerSecond > 0 {
		buckets := &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: time.Second / 20}
		var err error
		if g.ceiling, err = sash.New(memstore.New(nil), buckets, sash.PerSecond(o.OpenPerSecond)); err != nil {
			return nil, err
		}
	}
	if g.classify == nil {
		g.classify = func(error) Kind { return Unknown }
	}
	g.witness, _ = driver.Behind[driver.Witness](store)
	g.divide(&o)
	g.enter = (*breaker).enter
	g.keys = sync.OnceValue(g.probeKeys)
	if !driver.Nil(o.Local) {
		if o.Local.Powers()&localPowers != localPowers {
			return nil, fmt.Errorf("failover: a %T cannot decide in mode local: use memstore.New(nil)", o.Local)
		}
		g.local = newLocal(o.Local, o.Instances, len(g.breakers))
		for i := range g.local.backlogs {
			g.local.backlogs[i].write = func(done chan<- struct{}) { g.repay(&g.local.backlogs[i], &g.breakers[i], done) }
		}
	}
	return (&Store{guard: g}).With(o.Modes)
}

// With returns a store with other modes, for other limits. It shares the store's state, the calls in flight and the local admissions.
func (s *Store) With(modes Modes) (*Store, error) {
	if err := modes.validate(s.local != nil); err != nil {
		return nil, err
	}
	return &Store{guard: s.guard, modes: modes}, nil
}

// Unwrap returns the store behind this one.
func (s *Store) Unwrap() driver.Store { return s.store }

// Powers implements [driver.Store]. It returns the powers of the store behind, but the Store carries out one operation at a time.
func (s *Store) Powers() driver.Powers { return s.store.Powers()&^driver.CanEach | driver.Substitutes }

// State returns whether the store is up, down or being probed: Up if every part is up, and Down if any part is down.
func (s *Store) State() State {
	now, _ := s.now()
	return now
}

// Stats count the calls in flight and the local admissions of a Store.
type Stats struct {
	// InFlight is the number of calls that the store works on.
	InFlight int
	// Backlog is the number of accounts whose local charges wait to be written: a subject under one set of limits, or a call with an ID.
	Backlog int
	// Written counts the units admitted locally that were written to the store later.
	Written int64
	// Lost counts the units admitted locally that will never be written: too many subjects, a write that is rejected, or a Store closed.
	Lost int64
	// Doubtful counts the units admitted locally that the store may have charged already, and that are not charged again: the call had no
	// answer and no ID, or its ID is too old. It also counts the units by which settlements changed local admissions that no longer waited,
	// or for which there was no room for the settlement's ID.
	Doubtful int64
}

// Stats returns the counts of this Store and of all that With made from the same one.
func (s *Store) Stats() Stats {
	stats := Stats{InFlight: int(s.inFlight.Load())}
	if l := s.local; l != nil {
		stats.Backlog = int(l.accounts.Load())
		stats.Written, stats.Lost, stats.Doubtful = l.written.Load(), l.lost.Load(), l.doubtful.Load()
	}
	return stats
}

// A guard is the state that a Store shares with all that With made from it.
type guard struct {
	store    driver.Store
	budget   time.Duration
	classify func(error) Kind
	onError  func(error, Kind)
	inFlight atomic.Int64 // calls that the store works on
	placed   atomic.Int64 // those of them within their budget
	heard    atomic.Int64 // when the last answer came, since start
	start    time.Time
	most     int       // calls in flight at once
	breakers []breaker // of each part
	partOf   func(key string, policy *driver.Policy) int
	enter    func(*breaker) (ticket, error) // breaker.enter; tests replace it
	ceiling  *sash.Limiter                  // of mode Open; nil is none
	woke     func()                         // after every step, for tests
	witness  driver.Witness                 // knows how long the store has waited; nil if the store does not
	keys     func() []string                // probeKeys, once
	local    *local                         // nil without a local store
}
