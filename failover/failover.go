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
	// deadlines of callers: a caller whose deadline comes first gets the error of its context. It is time in which this process runs, so
	// that a reply that is there is read, but lasts ten times its length at most, and no more than a second longer. A call that is ready
	// to wait for its turn, such as [sash.Limiter.Wait], has 20 times as long, and a hundred times while the store answers others, but no
	// longer than it is ready to wait.
	Budget time.Duration
	// MaxInFlight is the most calls that all parts of the store work on at once, with those whose callers have left. Further calls
	// wait for their turn, and fewer are admitted when the store answers slowly. Zero is DefaultMaxInFlight.
	MaxInFlight int
	// Blip is the time for which the store may fail before it counts as down: then five failures take it down, if it
	// answered nothing meanwhile, or not half of at least 20 calls. Zero is DefaultBlip, in which TCP sends a lost packet
	// again. It should be longer for a Redis that stalls at each fork of a large data set.
	Blip time.Duration
	// Local decides in mode Local: memstore.New(nil). It must not block, and nothing else may use it. Only mode Local needs it.
	Local driver.Store
	// Instances returns how many processes share the limits. Below 1 means unknown, and then mode Local admits
	// nothing. Instances is called for every decision and must not block. Nil means 1.
	Instances func() int
	// Classify returns the kind of failure of a store's error. Nil takes a failed dial for Unsent and every other error for Unknown, and
	// what is admitted locally in place of an Unknown call is never charged. So set it for Redis: see ClassifyBy. If the call may have been
	// charged, the kind must be Unknown even if a setting is wrong. Rejected is for errors that the breaker should ignore, as it does
	// driver.ErrRejected. Of the Unknown errors it counts those of a connection and sash.ErrUnavailable: any other is about its call.
	Classify func(error) Kind
	// Parts is the number of parts of the store that can fail on their own, such as the nodes of a cluster. Zero is one.
	// Part returns which of them holds a subject, from 0 to Parts-1, and always the same one. Each part has its own
	// breaker. Part is called for every decision and must not block.
	Parts int
	Part  func(key string, policy *driver.Policy) int
	// OnChange is called when State changes. cause is nil when the store is up. The goroutine of a decision calls it,
	// so it must not block. Two calls can run at once; State returns the latest state.
	OnChange func(now State, cause error)
	// OnError is called with every failure of the store, of which there are few while it is down, and for each call that is Rejected. A
	// Misconfigured failure does not go away by itself: report it to an operator. OnError must not block. A panic of OnError, OnChange
	// or Classify is recovered and dropped; what Classify panics about is Unknown.
	OnError func(err error, kind Kind)
}

// Causes of a missing answer, for errors.Is on Result.Cause and on errors.
var (
	// ErrBudget means that no answer came within the budget. The error names the servers that are silent or refuse connections, if the
	// store is a [driver.Witness], as redisstore's is. A client that tries to connect for longer than the budget hides the cause: see
	// goredisstore.Tune and goredisstore.Greet.
	ErrBudget = errors.New("failover: no answer within the budget")
	// ErrBusy means that too many calls were under way while the store was down, or answered none for the whole budget.
	ErrBusy = errors.New("failover: too many calls are under way")
	// ErrOverload means that the store answers, and that the call has waited in this process, which has more calls than the store answers
	// in time, for longer than a budget can last. No failure mode answers it. It is sash.ErrUnavailable. Nothing was charged, unless the
	// error is ErrBudget, too.
	ErrOverload error = overload{}
	// ErrDown means that the store failed before and gets no calls for now.
	ErrDown = errors.New("failover: the store is down")
	// ErrCeiling means that mode Open let OpenPerSecond units through already.
	ErrCeiling = errors.New("failover: mode open lets no more through in this second")
)

type overload struct{}

// Error says what to do.
func (overload) Error() string {
	return "sash: overload: this process has more calls than the store answers in time: try again in a second"
}

// Is is of package errors.
func (overload) Is(target error) bool { return target == sash.ErrUnavailable }

// A Store answers for another store while that is unavailable. It is safe for concurrent use. Only in mode Local it has
// goroutines of its own, while local admissions are waiting to be written, and something to close: see [Store.Close].
// It has the powers of the other store; without one the error is [driver.ErrUnsupported].
type Store struct {
	*guard
	modes Modes
}

// New returns a store that answers for another, which it does not own. A nil opts is the default. New does no I/O, so a process can start
// while its store is down. The error says which option is wrong. New panics if store is nil.
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

// Unwrap returns the store that it answers for.
func (s *Store) Unwrap() driver.Store { return s.store }

// Powers implements [driver.Store]: those of the store behind it, but it carries out one operation at a time.
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
	// Backlog is the number of subjects, each under the same limits, and of calls with an ID, whose local charges wait to be written.
	Backlog int
	// Written counts the units admitted locally that were written to the store later.
	Written int64
	// Lost counts the units admitted locally that will never be written: too many subjects, a write that is rejected, or a Store closed.
	Lost int64
	// Doubtful counts the units admitted locally that the store may have charged, and that are not charged again: the call had no answer
	// and no ID, or its ID is too old. It also counts by how much settlements changed local admissions that were not waiting any more, or
	// when there was no room for the settlement's ID.
	Doubtful int64
}

// Stats returns the counts of all stores that were made of one by With.
func (s *Store) Stats() Stats {
	stats := Stats{InFlight: int(s.inFlight.Load())}
	if l := s.local; l != nil {
		stats.Backlog = int(l.accounts.Load())
		stats.Written, stats.Lost, stats.Doubtful = l.written.Load(), l.lost.Load(), l.doubtful.Load()
	}
	return stats
}

// A guard is the state that all stores made of one by With share.
type guard struct {
	store    driver.Store
	budget   time.Duration
	classify func(error) Kind
	onError  func(error, Kind)
	inFlight atomic.Int64 // calls that the store works on
	placed   atomic.Int64 // those of them within their budget
	heard    atomic.Int64 // when the last answer came, since start
	start    time.Time
	most     int       // of them at once
	breakers []breaker // of each part
	partOf   func(key string, policy *driver.Policy) int
	enter    func(*breaker) (ticket, error) // breaker.enter; tests replace it
	ceiling  *sash.Limiter                  // of mode Open; nil is none
	woke     func()                         // after every step, for tests
	witness  driver.Witness                 // for how long the store has waited; nil if it does not know
	keys     func() []string                // probeKeys, once
	local    *local                         // nil without a local store
}
