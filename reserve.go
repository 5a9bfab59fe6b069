package sash

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"example.com/sash/driver"
)

// settleTime is how long settling may take, whatever became of the caller.
const settleTime = time.Second

// A Reservation is a charge whose amount is an estimate, until Settle, Cancel or Release says what the call
// was worth. The first of them that is called decides; what is called after it repeats that as long as it has
// not succeeded, and does nothing once it has. So `defer r.Cancel(ctx)` beside a Settle is right, and a
// failed Settle can be tried again: it is applied once. Release is never repeated.
//
// A Reservation that is never settled stays charged with its estimate until that leaves the window. It
// is safe for concurrent use and holds nothing that has to be closed.
type Reservation struct {
	store  driver.Settler
	result Result

	mu      sync.Mutex
	set     driver.Settlement // guarded by mu
	decided bool              // guarded by mu: set.Units is what the call was worth
	done    bool              // guarded by mu: the store knows, or need not
}

// Reserve charges an estimate for a call whose cost is known only afterwards, such as the tokens of an
// answer that is still to be written. It asks like AllowN: a refusal is a Reservation that is not Allowed
// and has nothing to settle, never an error.
//
//	r, err := limiter.Reserve(ctx, key, 4000)
//	...
//	if !r.Allowed() {
//		// come back after r.Result().RetryAfter
//	}
//	defer r.Cancel(ctx) // unless it is settled
//	answer, err := ask(model)
//	...
//	err = r.Settle(ctx, answer.Tokens)
//
// What Settle adds to an estimate that was too low was used already, so it is charged whether or not there
// is room; until it leaves, nothing else is admitted. Estimates that are never too low keep every
// window within its units.
//
// A caller whose context ends first has its error at once. The store may go on deciding for up to a second;
// what it then still admits is given back.
//
// Errors are those of AllowN, and [ErrUnsupported] when the store does not settle or the limiter charges
// refused calls.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	store, ok := l.settler()
	if !ok {
		return nil, fmt.Errorf("%w: Reserve", ErrUnsupported)
	}
	if err := l.policy.checkCost(estimate); err != nil {
		return nil, err
	}
	key, err := l.key(key)
	if err != nil {
		return nil, err
	}
	calls := []call{newCall(key, estimate, l.policy, true)}
	results, err := l.decideForHolder(ctx, store, calls)
	if err != nil {
		return nil, err
	}
	return newReservation(store, calls[0], results[0]), nil
}

// ReserveAll charges several subjects, all or nothing, like [Limiter.AllowAll], and returns a Reservation
// for each in their order: every charge is settled by itself. Of a refusal there is nothing to settle, and
// the reservations are nil. Of a caller whose context ends first all that is still admitted is given back,
// as with Reserve.
//
// Errors are those of AllowAll, and [ErrUnsupported], which comes first, when the store does not settle or
// the limiter charges refused calls.
func (l *Limiter) ReserveAll(ctx context.Context, subjects ...Subject) (Result, []*Reservation, error) {
	store, ok := l.settler()
	if !ok {
		return Result{}, nil, fmt.Errorf("%w: ReserveAll", ErrUnsupported)
	}
	calls, err := l.calls(subjects, true)
	if err != nil {
		return Result{}, nil, err
	}
	results, err := l.decideForHolder(ctx, store, calls)
	if err != nil {
		return Result{}, nil, err
	}
	res := join(results)
	if !res.Allowed {
		return res, nil, nil
	}
	reserved := make([]*Reservation, len(calls))
	for i, c := range calls {
		reserved[i] = newReservation(store, c, results[i])
	}
	return res, reserved, nil
}

// settler returns the store if charges can be corrected: one that was refused and charged all the same
// cannot.
func (l *Limiter) settler() (driver.Settler, bool) {
	store, ok := driver.As[driver.Settler](l.store)
	return store, ok && !l.policy.CountRefused
}

func newReservation(store driver.Settler, c call, res Result) *Reservation {
	return &Reservation{
		store:  store,
		result: res,
		set:    c.settlement(&res),
		done:   !res.Allowed,
	}
}

// Allowed reports whether the estimate was admitted, and charged.
func (r *Reservation) Allowed() bool { return r.result.Allowed }

// Result returns the answer to the estimate.
func (r *Reservation) Result() Result { return r.result }

// Settle says what the call was worth: 0 to [MaxUnits]. The charge is corrected at the instant at which it
// was made; once it has left the window that does nothing.
//
// The store is told also when ctx has ended, for at most a second. The error is [ErrInvalidCost], or
// [ErrUnavailable] when it is not known whether the store was told: then Settle can be called again, and
// otherwise the estimate stays charged or the correction was made.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 || actual > MaxUnits {
		return fmt.Errorf("%w: %d units; a call is worth 0 to %d", ErrInvalidCost, actual, int64(MaxUnits))
	}
	set, pending := r.decide(actual, true)
	if !pending {
		return nil
	}
	if err := settle(ctx, r.store, set); err != nil {
		return err
	}
	r.mu.Lock()
	r.done = true
	r.mu.Unlock()
	return nil
}

// Cancel gives back the whole estimate: Settle with 0.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Release gives back the whole estimate like Cancel, but tells the store once and never again, whatever
// comes of it. So the store need not remember that it was told, which Cancel costs it an entry until the
// charge leaves the window. It suits many short calls of long windows. After the error [ErrUnavailable]
// the estimate may stay charged.
func (r *Reservation) Release(ctx context.Context) error {
	set, pending := r.decide(0, false)
	if !pending {
		return nil
	}
	return settle(ctx, r.store, set)
}

// decide fixes what the call was worth, and returns the settlement to apply, if any. One that is not
// repeatable has no ID.
func (r *Reservation) decide(actual int64, repeatable bool) (set driver.Settlement, pending bool) {
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
	pending = actual != r.set.Request.Cost
	r.done = !pending || !repeatable
	if pending && repeatable {
		r.set.ID = rand.Text()
	}
	return r.set, pending
}

// settle applies a settlement, also for a caller that is gone.
func settle(ctx context.Context, store driver.Settler, set driver.Settlement) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	// The context outlives the caller, so any error is the store's.
	return storeError(context.Background(), store.Settle(ctx, set))
}
