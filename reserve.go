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
)

// settleTime bounds a settlement, also one whose caller has left.
const settleTime = time.Second

// A Reservation is a charge of an estimate, until Settle, Cancel or Release corrects it. The first of them that is called
// decides the units. Later calls repeat that settlement until it has succeeded, and then do nothing. So
// `defer r.Cancel(ctx)` beside a Settle is right, and a failed Settle can be repeated: it is applied once. Release is
// never repeated.
//
// A Reservation that is never settled keeps its estimate charged until that leaves the window. It is safe for concurrent
// use and holds nothing that has to be closed.
type Reservation struct {
	limiter *Limiter
	subject string         // the key in the store
	all     []*Reservation // those of one BookAll, which are waited for together; nil for others
	books   bool           // it may have been booked, and its place may be in a queue
	came    int64          // when the store decided, on its clock
	id      string         // of the settlement, if the call may be repeated: one ID, so that it is applied once
	turn    *turn          // of a caller who waits, kept by the first of all: guarded by the mutex of the queues

	mu      sync.Mutex
	result  Result            // its At is guarded by mu, the rest does not change
	starts  time.Time         // guarded by mu: on this process's clock, at the latest
	took    time.Duration     // guarded by mu: how long the answer took, by which it may start earlier
	set     driver.Settlement // guarded by mu
	decided bool              // guarded by mu: set.Units is final
	done    bool              // guarded by mu: nothing is left to settle
}

// Reserve charges an estimate for a call whose cost is known only afterwards, such as the tokens of a model's answer. A
// refusal is a Reservation that is not Allowed and has nothing to settle, never an error: look at Allowed. Reserve books
// nothing, unlike that of golang.org/x/time/rate, so its Delay is zero and to sleep for it limits nothing: see
// [Limiter.Book] and [Limiter.Wait].
//
//	r, err := limiter.Reserve(ctx, key, 4000)
//	...
//	if !r.Allowed() {
//		// retry after r.Result().RetryAfter
//	}
//	defer r.Cancel(ctx) // unless it is settled
//	answer, err := ask(model)
//	...
//	err = r.Settle(ctx, answer.Tokens)
//
// Units that Settle adds to a low estimate were used already, so they are charged whether or not there is room; until
// they leave, nothing else is admitted. Estimates that are never too low keep every window within its units.
//
// A caller whose context ends first gets its error at once. The store may go on deciding for up to a second; an
// admission after that is given back.
//
// Errors are those of AllowN, and [ErrUnsupported] when the store does not settle or the limiter charges
// refused calls.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	if err := l.settles("Reserve"); err != nil {
		return nil, err
	}
	if err := l.policy.checkCost(estimate); err != nil {
		return nil, err
	}
	key, err := l.key(key)
	if err != nil {
		return nil, err
	}
	return l.hold(ctx, newCall(key, estimate, l.policy, true))
}

// hold charges or books a call that was checked, and returns its Reservation.
func (l *Limiter) hold(ctx context.Context, c call) (*Reservation, error) {
	results, err := l.decideForHolder(ctx, []call{c})
	if err != nil {
		return nil, err
	}
	r := newReservation(l, c, results[0])
	if c.Within > 0 && r.Allowed() {
		l.lines.trade(ctx, []*Reservation{r}, c.Within)
	}
	return r, nil
}

// ReserveAll charges several subjects, all or nothing, like [Limiter.AllowAll], and returns a Reservation
// for each, in their order: every charge is settled on its own. After a refusal there is nothing to settle, and
// the reservations are nil. If the caller's context ends first, a later admission is given back, as with Reserve.
//
// Errors are those of AllowAll, and [ErrUnsupported], which comes first, when the store does not settle or
// the limiter charges refused calls.
func (l *Limiter) ReserveAll(ctx context.Context, subjects ...Subject) (Result, []*Reservation, error) {
	if err := l.settles("ReserveAll"); err != nil {
		return Result{}, nil, err
	}
	calls, err := l.calls(subjects, true)
	if err != nil {
		return Result{}, nil, err
	}
	return l.holdAll(ctx, calls)
}

// holdAll charges calls that were checked, all or nothing, and returns a Reservation for each.
func (l *Limiter) holdAll(ctx context.Context, calls []call) (Result, []*Reservation, error) {
	results, err := l.decideForHolder(ctx, calls)
	if err != nil {
		return Result{}, nil, err
	}
	res := join(results)
	if !res.Allowed {
		return res, nil, nil
	}
	all := make([]*Reservation, len(calls))
	for i, c := range calls {
		all[i] = newReservation(l, c, results[i])
		all[i].all = all
	}
	if calls[0].Within > 0 {
		l.lines.trade(ctx, all, calls[0].Within)
		res.At, res.Delay = all[0].result.At, all[0].result.Delay
	}
	return res, all, nil
}

// settles returns ErrUnsupported for a call that settles if the store cannot, or if the limiter charges refused calls, which
// cannot be settled.
func (l *Limiter) settles(call string) error {
	if l.policy.CountRefused {
		return countRefusedError{call}
	}
	if !l.store.Powers().Has(driver.CanSettle) {
		return fmt.Errorf("%w: %s needs a store with driver.CanSettle", ErrUnsupported, call)
	}
	return nil
}

// newReservation returns the reservation of a call whose answer has just come. So a booking starts no earlier than the
// store's instant: later by the time that the answer took.
func newReservation(l *Limiter, c call, res Result) *Reservation {
	r := &Reservation{limiter: l, result: res, subject: c.Key, set: c.settlement(&res), done: !res.Allowed, books: c.Within > 0}
	r.came = r.set.At - r.set.Delay
	if r.books {
		now := time.Now()
		r.starts, r.took = now.Add(res.Delay), now.Sub(c.asked)
	}
	return r
}

// Allowed reports whether the estimate was admitted, and charged.
func (r *Reservation) Allowed() bool { return r.result.Allowed }

// Result returns the result of the estimate. Of a booking that moved up while its caller waited, At is the instant that it
// has now; the rest is as it was.
func (r *Reservation) Result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result
}

// Delay returns how long it takes until a booking starts: zero once it has, and for a call that was not booked, which may
// be a refused one.
func (r *Reservation) Delay() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starts.IsZero() {
		return 0
	}
	return max(0, time.Until(r.starts))
}

// Wait sleeps until a booking starts. Callers of this process who wait for the same keys with the same limits and costs
// stand in a queue: if the context of one ends first, the last place of the queue is given back, as Release does, those
// behind it move up, and Wait returns the context's error. When this process gives units of the key back, by Settle,
// Reward or Reset, the first asks the store to start now; of several subjects, for the one that had least left. So a booking can
// start earlier than [Reservation.Delay] said, and later only by the time that the store takes to answer that it cannot. If the
// context's deadline is nearer than the start Wait gives up at once, and the error is a [*LimitedError] that is also context.DeadlineExceeded. (A booking
// by [Limiter.BookOnce] keeps its place.) For a call that was refused the error is a LimitedError too.
func (r *Reservation) Wait(ctx context.Context) error {
	if !r.Allowed() {
		return limited(r.key(), r.Result(), nil)
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
	d := r.Delay()
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
	return r.stand(ctx)
}

// fullest returns the limit that a booking leaves the fewest units, for which it most likely has to wait.
func (r *Reservation) fullest() (i int) {
	statuses := r.result.limitStatuses()
	for j := range statuses {
		if statuses[j].Remaining < statuses[i].Remaining {
			i = j
		}
	}
	return i
}

// key returns the key as the caller wrote it.
func (r *Reservation) key() string { return strings.TrimPrefix(r.subject, r.limiter.prefix) }

// leave gives back the place of a caller who does not wait for it, also those that were booked with it. It tries once:
// when the store fails, they stay charged.
func (r *Reservation) leave(ctx context.Context) {
	_ = settle(ctx, r.together(), nil)
}

// together returns the reservations that are waited for with this one, itself included.
func (r *Reservation) together() []*Reservation {
	if r.all == nil {
		return []*Reservation{r}
	}
	return r.all
}

// Settle corrects the charge to the units that the call used: 0 to [MaxUnits]. It corrects the charge at the instant at
// which it was made, and does nothing once the charge has left the window.
//
// Settle tries for at most a second, even if ctx has ended. The error is [ErrInvalidCost], or [ErrUnavailable] if the
// store failed: then the charge may be corrected or not, and Settle can be called again.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 || actual > MaxUnits {
		return fmt.Errorf("%w: %d units; a call uses 0 to %d", ErrInvalidCost, actual, int64(MaxUnits))
	}
	return settle(ctx, []*Reservation{r}, []int64{actual})
}

// SettleAll settles reservations, such as those of one [Limiter.ReserveAll], to the units that each used, in their order: those of
// one limiter in one round trip, where the store has them in one place, and others at the same time. The errors are those of
// [Reservation.Settle]: after [ErrUnavailable] SettleAll can be called again, and after [ErrInvalidCost], which other numbers of
// units than of reservations are too, nothing is settled.
func SettleAll(ctx context.Context, reservations []*Reservation, actual ...int64) error {
	if len(actual) != len(reservations) {
		return fmt.Errorf("%w: %d numbers of units for %d reservations", ErrInvalidCost, len(actual), len(reservations))
	}
	for _, r := range reservations {
		if r.limiter != reservations[0].limiter {
			return errors.Join(atOnce(len(actual), func(i int) error { return reservations[i].Settle(ctx, actual[i]) })...)
		}
	}
	return settle(ctx, reservations, actual)
}

// settle settles reservations of one limiter to units, or without any gives them back, which it tries once.
func settle(ctx context.Context, reservations []*Reservation, actual []int64) error {
	for _, units := range actual {
		if units < 0 || units > MaxUnits {
			return fmt.Errorf("%w: %d units; a call uses 0 to %d", ErrInvalidCost, units, int64(MaxUnits))
		}
	}
	var pending []*Reservation
	var sets []driver.Settlement
	var starts []time.Time
	for i, r := range reservations {
		units := int64(0)
		if actual != nil {
			units = actual[i]
		}
		if set, open := r.decide(units, actual != nil); open {
			pending, sets, starts = append(pending, r), append(sets, set), append(starts, r.begins())
		}
	}
	if len(pending) == 0 {
		return nil
	}
	errs := pending[0].limiter.settle(ctx, sets, starts)
	for i, r := range pending {
		r.mu.Lock()
		r.done = r.done || errs[i] == nil
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

// atOnce calls f with each number below n, at the same time, and returns the errors.
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
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Release gives back the whole estimate like Cancel, but it tries only once. So the store does not have to remember the
// settlement, which for Cancel takes an entry until the charge leaves the window. It suits many short calls with long
// windows. After the error [ErrUnavailable] the estimate may stay charged.
func (r *Reservation) Release(ctx context.Context) error { return settle(ctx, []*Reservation{r}, nil) }

// charge returns the charge, and whether it is still held: made, and not settled.
func (r *Reservation) charge() (set driver.Settlement, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set, !r.done && !r.decided
}

// move records that the charge was made anew at an instant.
func (r *Reservation) move(at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set.At = at
}

// decide fixes the units of the call, and returns the settlement to apply, if any. A settlement that is not repeatable has
// no ID.
func (r *Reservation) decide(actual int64, repeatable bool) (set driver.Settlement, pending bool) {
	if r.books {
		defer r.limiter.lines.stepOut(r)()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return r.set, false
	}
	if r.decided {
		return r.set, true
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
	return r.set, pending
}

// begins returns when a booking that lies ahead starts, and zero for what has started.
func (r *Reservation) begins() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Until(r.starts) > 0 {
		return r.starts
	}
	return time.Time{}
}

// settle applies settlements, even if the caller has left, and returns the error of each. What comes back of a booking that lies
// ahead is free when that would have started.
func (l *Limiter) settle(ctx context.Context, sets []driver.Settlement, starts []time.Time) []error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	b := driver.Batch{Mode: driver.Each}
	for _, set := range sets {
		b.Ops = append(b.Ops, driver.Op{Kind: driver.Settle, Settlement: set})
	}
	// The context outlives the caller, so any error is the store's.
	err := l.store.Do(ctx, &b)
	errs := make([]error, len(sets))
	for i := range errs {
		errs[i] = cmp.Or(err, b.Ops[i].Err)
	}
	if len(sets) > 1 && errors.Is(err, driver.ErrApart) {
		errs = atOnce(len(sets), func(i int) error { return l.store.Do(ctx, &driver.Batch{Ops: b.Ops[i : i+1]}) })
	}
	for i, set := range sets {
		if back := set.Cost - set.Units; back > 0 {
			l.lines.give(set.Key, gap{at: set.At, starts: starts[i], units: back}, errs[i] == nil)
		}
		errs[i] = storeError(context.Background(), errs[i])
	}
	return errs
}
