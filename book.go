package sash

import (
	"context"
	"fmt"
	"time"

	"example.com/sash/driver"
)

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
	store, err := l.booker("Book")
	if err != nil {
		return nil, err
	}
	if err := l.policy.checkCost(cost); err != nil {
		return nil, err
	}
	if key, err = l.key(key); err != nil {
		return nil, err
	}
	c := newCall(key, cost, l.policy, true)
	c.book(within)
	return l.hold(ctx, store, c)
}

// BookAll books several subjects for one instant, all or nothing, and returns a Reservation for each, in their order:
// every charge is settled on its own. Waiting for one of them waits for all, and gives all back if the caller leaves.
// After a refusal nothing is charged, and the reservations are nil. Within is that of Book.
//
// Errors are those of ReserveAll. [ErrUnsupported], which comes first, also means that the store does not book under
// the limiter's algorithm, and later that it keeps the subjects in different places: see [KeyTogether].
func (l *Limiter) BookAll(ctx context.Context, within time.Duration, subjects ...Subject) (Result, []*Reservation, error) {
	store, err := l.booker("BookAll")
	if err != nil {
		return Result{}, nil, err
	}
	calls, err := l.calls(subjects, true)
	if err != nil {
		return Result{}, nil, err
	}
	for i := range calls {
		calls[i].book(within)
	}
	return l.holdAll(ctx, store, calls)
}

// BookOnce is Book for a call that may be repeated because its answer was lost or its process was restarted: see
// [Limiter.AllowOnce]. Repeated with the same ID and key until [RepeatTime] after it starts, it finds its place again:
// the same instant, without another charge. A refusal is not remembered.
//
// Since a repetition may come, [Reservation.Wait] keeps the place when its caller leaves, and so does BookOnce, also one in a gap.
// Settle and Cancel are applied once, from whichever repetition they come, and reckon from its cost, which has to be
// that of the first. A call that was canceled is still remembered, so repeat it only with another ID.
//
// Errors are those of Book and AllowOnce.
func (l *Limiter) BookOnce(ctx context.Context, id, key string, cost int64, within time.Duration) (*Reservation, error) {
	settler, err := l.booker("BookOnce")
	if err != nil {
		return nil, err
	}
	c := newCall(key, cost, l.policy, true)
	c.book(within)
	res, err := l.decideOnce(ctx, id, &c)
	if err != nil {
		return nil, err
	}
	r := newReservation(l, settler, c, res)
	r.id = fmt.Sprintf("%s@%d", id, r.set.At)
	return r, nil
}

// booker returns the store for a call that books. The error is ErrUnsupported if the store cannot.
func (l *Limiter) booker(call string) (driver.Settler, error) {
	store, err := l.settler(call)
	if err == nil && !driver.CanBook(l.store, &l.policy.Policy) {
		err = fmt.Errorf("%w: %s with algorithm %v: it needs a driver.Booker, and sliding-log or sliding-buckets without a block",
			ErrUnsupported, call, l.policy.Algorithm)
	}
	return store, err
}

// book makes the call one that books.
func (c *call) book(within time.Duration) { c.Within, c.asked = ahead(within), time.Now() }

// ahead returns a time ahead as a request has it.
func ahead(within time.Duration) int64 { return max(0, min(within.Microseconds(), driver.MaxAhead)) }
