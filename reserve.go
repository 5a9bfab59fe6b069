package sash

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
)

// settleTime bounds a settlement, which continues after its caller has left.
const settleTime = time.Second

// A Reservation is a charge of an estimate, or a charge that starts later. The first call of Settle, Cancel or Release decides the units.
// Later calls repeat that settlement until it has succeeded, and then do nothing. So `defer r.Cancel(ctx)` together with a Settle is right.
// A Reservation that is never settled stays charged until its estimate leaves the window. It is safe for concurrent use.
type Reservation struct {
	// Parts are the reservations of the subjects, in order. Each can be settled on its own. A single subject's part is the Reservation itself.
	Parts []*Reservation
	// Chosen is the subject that was charged, or after a refusal the one that has room first: 0 is Reserve's key, and i is Any[i-1].
	Chosen int

	limiter *Limiter
	subject string         // the key in the store
	all     []*Reservation // the reservations that start together, this one too
	books   bool           // it may have been booked, and wait in a queue
	came    int64          // when the store decided, on its clock
	id      string         // the ID of its settlement, if the call may be repeated: every repetition has the same, so one is applied
	waiter  *waiter        // of the caller, in the first of all; guarded by the mutex of the queues

	mu      sync.Mutex
	result  Result            // its At is guarded by mu, the rest does not change
	place                     // guarded by mu; zero unless it may have been booked
	set     driver.Settlement // its Request does not change, the rest is guarded by mu
	decided bool              // guarded by mu: set.Units is final
	done    bool              // guarded by mu: nothing is left to settle
}

// ReserveOptions are the options of [Limiter.Reserve]. The zero value is the default: one subject, now.
type ReserveOptions struct {
	// WaitUpTo is how far ahead the call may start, up to [MaxAhead]. Zero refuses a call that does not fit now.
	WaitUpTo time.Duration
	// ID names a call that may be repeated because its answer was lost: see [Limiter.AllowOnce].
	ID string
	// Limits are the limits of the first subject. Empty means the limiter's own.
	Limits []Limit
	// All are further subjects, charged with the first for one instant, all or nothing: see [Limiter.AllowAll].
	All []Subject
	// Any are further subjects. One of them or the first is charged: see [Limiter.AllowAny].
	Any []Subject
}

// Reserve charges for a call whose start or whose cost is not final yet, such as the tokens of a model's answer. A nil opts
// reserves one subject now. A refusal is a Reservation that is not Allowed and has nothing to settle, never an error.
//
//	r, err := limiter.Reserve(ctx, key, 4000, &sash.ReserveOptions{WaitUpTo: time.Minute})
//	if err != nil {
//		return err
//	}
//	if err := r.Wait(ctx); err != nil { // also when it is not Allowed
//		return err
//	}
//	defer r.Cancel(ctx) // unless it is settled
//	answer, err := ask(model)
//	...
//	err = r.Settle(ctx, answer.Tokens)
//
// Units that Settle adds to a low estimate were used already, so they are charged whether or not there is room. Until
// there is room again, nothing else is admitted.
//
// With WaitUpTo, a call that does not fit now is booked: it is charged at the earliest later instant at which it delays no earlier booking
// of any process that shares the store. [Reservation.Wait] sleeps until then. If that instant is farther away than WaitUpTo, nothing is
// charged, and RetryAfter is the time until the call fits behind all bookings. With Any, Reserve charges the subject that admits the call
// first: now the one with most room, or later the one with the shortest queue. If the keys are in different slots, or on Redis under
// calendar limits, another subject may have been free earlier.
//
// A call that is not booked goes ahead of a booking only if it delays none. If callers of this process [Reservation.Wait] for the same
// cost, a newcomer whose booking fills a gap gets the last of their places that is within its WaitUpTo, and those callers move up. A
// booking whose process dies stays charged.
//
// A call with an ID may be repeated until [driver.RepeatTime] after its start. A repetition gets the same instant without another charge,
// so the call keeps its place when its caller leaves. All repetitions must have the same cost, and the call is settled once for all of
// them. The store remembers a call that was canceled, but not a refusal.
//
// Without an ID, a caller whose context ends first gets the context's error at once. An admission up to a second later is given back.
//
// Errors are those of AllowN, AllowAll and AllowOnce. The error is [ErrUnsupported] if the store does not settle, if the limiter charges
// refused calls, or if a call may wait and the store does not book under the limiter's algorithm. Bookings need SlidingLog or
// SlidingBuckets, no Options.Block, and with All a store that keeps the subjects in one place: see [KeyTogether].
func (l *Limiter) Reserve(ctx context.Context, key string, cost int64, opts *ReserveOptions) (*Reservation, error) {
	o, mode := *cmp.Or(opts, &ReserveOptions{}), driver.All
	err := l.settles("Reserve")
	if o.WaitUpTo > 0 {
		err = l.books("Reserve with WaitUpTo")
	}
	if err == nil && o.ID != "" {
		err = l.repeats(o.ID)
	}
	switch {
	case err != nil:
		return nil, err
	case o.WaitUpTo < 0:
		return nil, fmt.Errorf("%w: WaitUpTo is %v; a call waits 0 or longer", ErrInvalidLimit, o.WaitUpTo)
	case len(o.All) > 0 && len(o.Any) > 0:
		return nil, fmt.Errorf("%w: a reservation is of All subjects or of Any, not both", ErrInvalidLimit)
	case o.ID != "" && len(o.All)+len(o.Any) > 0:
		return nil, fmt.Errorf("%w: a call that may be repeated has one subject", ErrInvalidID)
	case len(o.Any) > 0:
		mode = driver.Any
	}
	calls, err := l.calls(nil, mode, append(append([]Subject{{key, cost, o.Limits}}, o.All...), o.Any...))
	if err != nil {
		return nil, err
	}
	for i := range calls {
		calls[i].id, calls[i].MaySettle = o.ID, true
		calls[i].book(o.WaitUpTo)
	}
	return l.reserve(ctx, mode, calls)
}

// reserve charges calls that were checked, and returns their Reservation.
func (l *Limiter) reserve(ctx context.Context, mode driver.Mode, calls []call) (*Reservation, error) {
	decide := func(ctx context.Context) (*Reservation, error) {
		decided, err := l.decide(ctx, mode, calls)
		if err != nil {
			return nil, err
		}
		return l.reservation(decided), nil
	}
	var r *Reservation
	var err error
	if calls[0].id != "" {
		r, err = decide(ctx)
	} else {
		r, err = apart.Outlive(ctx, l.left, decide, func(r *Reservation) { r.leave(ctx) })
	}
	if err != nil {
		return nil, storeError(ctx, err)
	}
	if calls[0].Within > 0 && r.id == "" && r.Allowed() {
		l.queues.trade(ctx, r.all, calls[0].Within)
	}
	return r, nil
}

// reservation returns the reservation of calls whose answer has just come. The time that the answer took delays the start of a booking.
func (l *Limiter) reservation(calls []call) *Reservation {
	now, all := time.Now(), make([]*Reservation, len(calls))
	for i := range calls {
		c := &calls[i]
		r := &Reservation{limiter: l, result: c.result, subject: c.Key, done: !c.result.Allowed, books: c.Within > 0, Chosen: c.index, all: all}
		r.set = driver.Settlement{Request: c.Request, At: c.result.At.UnixMicro(), Delay: c.result.Delay.Microseconds(), Source: c.result.Source}
		r.came = r.set.At - r.set.Delay
		if c.id != "" {
			r.id = fmt.Sprintf("%s@%d", c.id, r.set.At)
		}
		if r.books {
			r.place = place{at: r.set.At, starts: now.Add(c.result.Delay), took: now.Sub(c.asked), delay: r.set.Delay, source: r.set.Source}
		}
		all[i], r.Parts = r, all[i:i+1]
	}
	if len(calls) == 1 {
		return all[0]
	}
	r := &Reservation{limiter: l, result: combine(calls), all: all, Parts: all}
	if by, refused := r.result.RefusedBy(); refused {
		r.Parts, r.all, r.subject = nil, nil, by.Key
	}
	return r
}

// settles returns ErrUnsupported with the name of a call if the store cannot settle or the limiter charges refused calls.
func (l *Limiter) settles(call string) error {
	if l.policy.CountRefused {
		return countRefusedError{call}
	}
	if l.store.Powers()&driver.CanSettle == 0 {
		return fmt.Errorf("%w: %s needs a store with driver.CanSettle", ErrUnsupported, call)
	}
	return nil
}

// books returns ErrUnsupported with the name of a call if the store cannot book.
func (l *Limiter) books(call string) error {
	err := l.settles(call)
	if err == nil && (l.store.Powers()&driver.CanBook == 0 || !l.policy.Bookable()) {
		err = fmt.Errorf("%w: %s with algorithm %v: it needs a store with driver.CanBook, and sliding-log or sliding-buckets without a block",
			ErrUnsupported, call, l.policy.Algorithm)
	}
	return err
}

// Allowed reports whether the estimate was admitted, and charged.
func (r *Reservation) Allowed() bool { return r.result.Allowed }

// Result returns the result of the estimate. If a booking has moved up while its caller waited, At is its new instant.
func (r *Reservation) Result() Result {
	if len(r.Parts) > 1 && r.Parts[0].books {
		res, first := r.result, r.Parts[0].Result()
		res.At, res.Delay = first.At, first.Delay
		return res
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result
}

// StartsIn returns the time until a booking starts: zero once it has started, for a call that was not booked, and after a refusal.
func (r *Reservation) StartsIn() time.Duration {
	if len(r.Parts) > 1 {
		r = r.Parts[0]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, time.Until(r.starts))
}

// Wait sleeps until a booking starts. If the context ends first, Wait returns the context's error. The callers of this process behind it
// with the same keys, limits and costs then move up, and the last of their places is given back. (A booking with an ID keeps its place.)
// When this process gives back units of the key (of several, the key with the least left), the first caller asks the store to start now. So
// a booking can start earlier than StartsIn said, but later only by the time that the store takes to refuse that. If the context's
// deadline is nearer than the start, Wait gives up at once with a [*LimitedError] that is also context.DeadlineExceeded. A
// refused call is a LimitedError, too.
func (r *Reservation) Wait(ctx context.Context) error {
	if !r.Allowed() {
		return limited(r.key(), r.Result(), nil)
	}
	if len(r.Parts) > 1 {
		r = r.Parts[0]
	}
	if err := r.sleep(ctx); err != nil {
		if r.id == "" {
			r.leave(ctx)
		}
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided && r.set.Units == 0 {
		return errGivenBack
	}
	return nil
}

var errGivenBack = errors.New("sash: the reservation was given back, so its call must not start")

// sleep waits until the booking starts, unless the context ends before.
func (r *Reservation) sleep(ctx context.Context) error {
	d := r.StartsIn()
	if d == 0 {
		return storeError(ctx, ctx.Err())
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		res := r.Result()
		res.Allowed, res.refusals, res.RetryAfter = false, 1<<r.fullest(), d
		return limited(r.key(), res, context.DeadlineExceeded)
	}
	if r.id != "" {
		return sleep(ctx, d)
	}
	return r.waitInGroup(ctx)
}

// fullest returns the index of the limit with the fewest units left, for which the booking most likely has to wait.
func (r *Reservation) fullest() (i int) {
	statuses := r.result.limitStatuses()
	for j := range statuses {
		if statuses[j].Remaining < statuses[i].Remaining {
			i = j
		}
	}
	return i
}

func (r *Reservation) key() string { return strings.TrimPrefix(r.subject, r.limiter.prefix) }

// leave gives back the reservations of a caller who does not wait any longer. It tries only once, so they may stay charged.
func (r *Reservation) leave(ctx context.Context) { _ = settle(ctx, r.all, nil) }

// Settle corrects the charge to the units that the call used: 0 to [MaxUnits], one number for each subject, in their
// order. It corrects the charge at the instant at which it was made, and does nothing once the charge has left the window.
//
// Settle tries for at most a second, even if ctx has ended. The error is [ErrInvalidCost], and then nothing is settled, or
// [ErrUnavailable] if the store failed: then the charge may be corrected or not, and Settle can be called again.
func (r *Reservation) Settle(ctx context.Context, actual ...int64) error {
	if len(actual) != len(r.Parts) && r.Allowed() || len(actual) == 0 {
		return fmt.Errorf("%w: %d numbers of units for %d subjects", ErrInvalidCost, len(actual), len(r.Parts))
	}
	for _, units := range actual {
		if units < 0 || units > MaxUnits {
			return fmt.Errorf("%w: %d units; a call uses 0 to %d", ErrInvalidCost, units, int64(MaxUnits))
		}
	}
	return settle(ctx, r.Parts, actual)
}

// settle settles reservations of one limiter to the given units, even if the caller has left. With nil it gives them back and tries once.
func settle(ctx context.Context, reservations []*Reservation, actual []int64) error {
	var pending []*Reservation
	var starts []time.Time
	b := driver.Batch{Mode: driver.Each}
	deadline := time.Now().Add(settleTime) // includes the wait for a booking that is being brought forward
	for i, r := range reservations {
		units := int64(0)
		if actual != nil {
			units = actual[i]
		}
		if set, begins, open := r.decide(units, actual != nil); open {
			pending, starts = append(pending, r), append(starts, begins)
			b.Ops = append(b.Ops, driver.Op{Kind: driver.Settle, Settlement: set})
		}
	}
	if len(pending) == 0 {
		return nil
	}
	l := pending[0].limiter
	if actual == nil { // it is tried once, so it has a second of its own
		deadline = time.Now().Add(settleTime)
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	// The context outlives the caller, so any error is the store's.
	err := l.store.Do(ctx, &b)
	errs := make([]error, len(pending))
	for i := range errs {
		errs[i] = cmp.Or(err, b.Ops[i].Err)
	}
	if len(pending) > 1 && errors.Is(err, driver.ErrApart) {
		errs = atOnce(len(pending), func(i int) error { return l.store.Do(ctx, &driver.Batch{Ops: b.Ops[i : i+1]}) })
	}
	for i, r := range pending {
		set := &b.Ops[i].Settlement
		if back := set.Cost - set.Units; back > 0 {
			l.queues.give(set.Key, gap{at: set.At, starts: starts[i], units: back}, errs[i] == nil)
		}
		r.mu.Lock()
		r.done = r.done || errs[i] == nil
		r.mu.Unlock()
		errs[i] = storeError(context.Background(), errs[i])
	}
	return errors.Join(errs...)
}

// atOnce calls f with each number below n concurrently, and returns the errors.
func atOnce(n int, f func(int) error) []error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			defer func() {
				if p := recover(); p != nil { // no caller could recover it
					errs[i] = fmt.Errorf("sash: the store panicked: %v", p)
				}
			}()
			errs[i] = f(i)
		})
	}
	group.Wait()
	return errs
}

// Cancel gives back the whole estimate: Settle with 0.
func (r *Reservation) Cancel(ctx context.Context) error {
	return settle(ctx, r.Parts, make([]int64, len(r.Parts)))
}

// Release gives back the whole estimate like Cancel, but tries only once, so the store need not remember the settlement until the charge
// leaves the window. It suits many short calls with long windows. After the error [ErrUnavailable] the estimate may stay charged.
func (r *Reservation) Release(ctx context.Context) error { return settle(ctx, r.Parts, nil) }

// decide fixes the units. It returns the settlement to apply, with an ID if it may be repeated, and when a booking ahead begins.
func (r *Reservation) decide(actual int64, repeatable bool) (set driver.Settlement, begins time.Time, pending bool) {
	if r.books {
		defer r.limiter.queues.stepOut(r)()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Until(r.starts) > 0 {
		begins = r.starts
	}
	if r.done || r.decided {
		return r.set, begins, !r.done
	}
	r.decided = true
	r.set.Units = actual
	pending = actual != r.set.Cost
	r.done = !pending || !repeatable
	if pending && r.id != "" {
		r.set.ID = r.id
	} else if pending && repeatable {
		r.set.ID = rand.Text()
	}
	return r.set, begins, pending
}
