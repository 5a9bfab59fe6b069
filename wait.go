package sash

import (
	"context"
	"fmt"
	"math"
	"time"

	"example.com/sash/driver"
)

// Wait waits until one unit is admitted: WaitN with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string) error {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits for cost units, in order: it books them with a single decision and sleeps until they start. Calls are
// admitted in the order in which the store gets them, over all processes that share it, and a high cost is not
// overtaken by low ones, but for what callers who leave and settlements free: the next calls that fit there get that, and
// delay no caller who waits. If they cannot start before the context's
// deadline it fails at once with a [*LimitedError] that is also context.DeadlineExceeded, and nothing is charged. If the
// context ends first, it returns the context's error, in two seconds at most, and those who wait behind it in this process with
// the same cost move up: callers who hang up leave no gap. If the process ends, its places stay unused. Without a deadline
// it waits however long it takes.
//
// When this process gives units of the key back, or [Limiter.Raise] is called, the first of those who wait asks the store to start
// now, which delays nobody. If the store fails then, that caller gets the error.
//
// Calls that do not wait, such as Allow, get what those who wait leave: none, as long as those ask for all there is. A
// limiter [Limiter.With] smaller limits for those who wait leaves the rest to the others.
//
// Where the store does not book (see [Limiter.Book]), or its queue is full or longer than [MaxAhead], the callers of this
// process stand in line for each key, first come first served: the first of them sleeps for RetryAfter and asks again,
// or when this process gives back units of the key, by a Reservation, a Reward or a Reset. Of several processes, the
// first of any wins. A caller in line whose deadline is nearer than the RetryAfter of the first fails at once; others
// fail at their deadline.
//
// Other errors are those of AllowN. If the store fails while callers wait in line, each of them asks for itself.
func (l *Limiter) WaitN(ctx context.Context, key string, cost int64) error {
	if err := l.policy.checkCost(cost); err != nil {
		return err
	}
	full, err := l.ready(ctx, key)
	if err != nil {
		return err
	}
	if l.books("Wait") != nil {
		return l.lines.wait(ctx, key, full, &waiter{cost: cost, policy: l.policy}, func(under *policy) (Result, error) {
			c := newCall(full, cost, under, false)
			c.waits = true
			res, err := l.decideOne(ctx, c)
			if deadline, ok := ctx.Deadline(); err == nil && !res.Allowed && ok && time.Until(deadline) <= res.RetryAfter {
				err = limited(key, res, context.DeadlineExceeded)
			}
			return res, err
		})
	}
	c := newCall(full, cost, l.policy, true)
	c.waits = true
	var r *Reservation
	book := func(under *policy) (Result, error) {
		c.policy, c.Policy = under, &under.Policy
		patience := l.patience(ctx)
		c.book(patience)
		r, err = l.hold(ctx, c)
		if err != nil {
			return Result{}, err
		}
		if !r.Allowed() && r.result.RetryAfter > patience {
			err = limited(key, r.result, context.DeadlineExceeded)
		}
		return r.result, err
	}
	if !l.lines.busy(full) {
		if _, err := book(l.policy); err != nil {
			return err
		}
	}
	if r == nil || !r.Allowed() {
		if err := l.lines.wait(ctx, key, full, &waiter{cost: cost, policy: l.policy, books: true}, book); err != nil {
			return err
		}
	}
	return r.Wait(ctx)
}

// WaitDo runs f as soon as Wait admits it, and returns what f returns. If Wait fails f does not run, and the error is that
// of Wait.
func (l *Limiter) WaitDo(ctx context.Context, key string, f func(context.Context) error) error {
	if err := l.Wait(ctx, key); err != nil {
		return err
	}
	return f(ctx)
}

// patience returns how long a caller can wait: to its deadline, less the time that the store's answer usually takes.
func (l *Limiter) patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return time.Until(deadline) - time.Duration(l.pace.usual.Load()) - 1
}

// leastWait keeps a wait from spinning on a store whose refusals say that there is room at once.
const leastWait = time.Millisecond / 4

// sleep waits for d, or returns the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return storeError(ctx, ctx.Err())
	}
}

// MaxAhead is the longest time ahead for which a call can be booked.
const MaxAhead = time.Duration(driver.MaxAhead) * time.Microsecond

// Book charges a call now if it fits, and otherwise at the earliest later instant at which it fits behind every call
// that was booked before, over all processes that share the store. Once units came back before bookings, it is charged at the
// earliest instant at which it fits and delays none of them. [Reservation.Wait] sleeps until then:
//
//	r, err := limiter.Book(ctx, key, cost, time.Minute)
//	if err != nil {
//		return err
//	}
//	if err := r.Wait(ctx); err != nil { // also when it is not Allowed
//		return err
//	}
//	defer r.Settle(ctx, used) // or nothing, if the cost was right
//
// If that instant is farther away than within, the Reservation is not Allowed and nothing is charged; its RetryAfter is
// the time until it fits behind all bookings. Within is whole microseconds; zero and less only ask for now, and more than [MaxAhead]
// counts as MaxAhead.
//
// Calls that are not booked go ahead of a booking only if they delay none. A booking that is given back leaves its place
// to the next calls that fit there. Where one gets an earlier instant than callers of this process who [Reservation.Wait] for
// the same cost, they move up and it takes the last of theirs that is within, so it overtakes none of those. One whose
// process dies stays charged, like any
// reservation that is never settled. A caller whose context ends before the store answers holds no place: one that the
// store still grants within a second is given back.
//
// Errors are those of Reserve. [ErrUnsupported] also means that the store does not book under the limiter's algorithm.
// Stores book under SlidingLog and SlidingBuckets, and never with Options.CountRefused or Options.Block.
func (l *Limiter) Book(ctx context.Context, key string, cost int64, within time.Duration) (*Reservation, error) {
	if err := l.books("Book"); err != nil {
		return nil, err
	}
	if err := l.policy.checkCost(cost); err != nil {
		return nil, err
	}
	key, err := l.key(key)
	if err != nil {
		return nil, err
	}
	c := newCall(key, cost, l.policy, true)
	c.book(within)
	return l.hold(ctx, c)
}

// BookAll books several subjects for one instant, all or nothing, and returns a Reservation for each, in their order:
// every charge is settled on its own. Waiting for one of them waits for all, and gives all back if the caller leaves.
// After a refusal nothing is charged, and the reservations are nil. Within is that of Book.
//
// Errors are those of ReserveAll. [ErrUnsupported], which comes first, also means that the store does not book under
// the limiter's algorithm, and later that it keeps the subjects in different places: see [KeyTogether].
func (l *Limiter) BookAll(ctx context.Context, within time.Duration, subjects ...Subject) (Result, []*Reservation, error) {
	if err := l.books("BookAll"); err != nil {
		return Result{}, nil, err
	}
	calls, err := l.calls(subjects, true)
	if err != nil {
		return Result{}, nil, err
	}
	for i := range calls {
		calls[i].book(within)
	}
	return l.holdAll(ctx, calls)
}

// BookOnce is Book for a call that may be repeated because its answer was lost or its process was restarted: see
// [Limiter.AllowOnce]. Repeated with the same ID and key until [RepeatTime] after it starts, it finds its place again:
// the same instant, without another charge. A refusal is not remembered.
//
// Since a repetition may come, [Reservation.Wait] keeps the place when its caller leaves, and so does BookOnce, also one in a gap.
// Settle and Cancel are applied once, from whichever repetition they come, and reckon from its cost, which has to be
// that of the first. A call that was canceled is still remembered, so repeat it only with another ID.
//
// With no time to wait it is Reserve for such a call, under every algorithm. Errors are those of Book and AllowOnce.
func (l *Limiter) BookOnce(ctx context.Context, id, key string, cost int64, within time.Duration) (*Reservation, error) {
	err := l.settles("BookOnce")
	if err == nil && within > 0 {
		err = l.books("BookOnce")
	}
	if err != nil {
		return nil, err
	}
	c := newCall(key, cost, l.policy, true)
	c.book(within)
	res, err := l.decideOnce(ctx, id, &c)
	if err != nil {
		return nil, err
	}
	r := newReservation(l, c, res)
	r.id = fmt.Sprintf("%s@%d", id, r.set.At)
	return r, nil
}

// books returns ErrUnsupported for a call that books if the store cannot.
func (l *Limiter) books(call string) error {
	err := l.settles(call)
	if err == nil && !l.store.Powers().Books(&l.policy.Policy) {
		err = fmt.Errorf("%w: %s with algorithm %v: it needs a store with driver.CanBook, and sliding-log or sliding-buckets without a block",
			ErrUnsupported, call, l.policy.Algorithm)
	}
	return err
}

// book makes the call one that books.
func (c *call) book(within time.Duration) { c.Within, c.asked = ahead(within), time.Now() }

// ahead returns a time ahead as a request has it.
func ahead(within time.Duration) int64 { return max(0, min(within.Microseconds(), driver.MaxAhead)) }
