package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// A Faulty store passes every call on to another store, or makes it fail, take long or be refused: for tests of a program
// without its store. It is safe for concurrent use. Make one with NewFaulty.
type Faulty struct {
	passthrough
	fault atomic.Pointer[fault]
}

type passthrough = driver.Passthrough

// A fault is what happens to a call: it ends with the error, or is passed on if answered is false.
type fault func(ctx context.Context, b *driver.Batch) (answered bool, err error)

// NewFaulty returns a store that passes calls on to next until [Faulty.Fail], [Faulty.Hang], [Faulty.Slow] or
// [Faulty.Refuse] is called. The last one counts.
func NewFaulty(next driver.Store) *Faulty {
	if driver.Nil(next) {
		panic("storetest: NewFaulty needs a store, such as memstore.New(nil)")
	}
	f := &Faulty{passthrough: passthrough{Store: next}}
	f.Fail(nil)
	return f
}

func (f *Faulty) set(to fault) { f.fault.Store(&to) }

// Fail makes every call from now on fail with err. Nil ends whatever fault there is.
func (f *Faulty) Fail(err error) {
	f.set(func(context.Context, *driver.Batch) (bool, error) { return err != nil, err })
}

// Hang makes every call from now on wait until its context ends. It sends on calls, unless that is nil, when
// a call starts to wait.
func (f *Faulty) Hang(calls chan<- struct{}) {
	f.set(func(ctx context.Context, _ *driver.Batch) (bool, error) {
		if calls != nil {
			calls <- struct{}{}
		}
		<-ctx.Done()
		return true, ctx.Err()
	})
}

// Slow makes every call from now on wait for d, above zero, before it is passed on, or until its context ends.
func (f *Faulty) Slow(d time.Duration) {
	f.set(func(ctx context.Context, _ *driver.Batch) (bool, error) {
		select {
		case <-time.After(d):
			return false, nil
		case <-ctx.Done():
			return true, ctx.Err()
		}
	})
}

// Refuse refuses every decision from now on, by all its limits, with a RetryAfter of d, which is above zero. Nothing is
// charged. Calls that decide nothing, such as Peek, Settle and Reset, and Penalize are passed on.
func (f *Faulty) Refuse(d time.Duration) {
	retry := d.Microseconds()
	f.set(func(_ context.Context, b *driver.Batch) (refused bool, _ error) {
		for i := range b.Ops {
			if op := &b.Ops[i]; op.Kind == driver.Charge && op.Cost > 0 && !op.Forced {
				statuses := slices.Repeat([]driver.Status{{Retry: retry, Release: retry, Reset: retry}}, len(op.Policy.Limits))
				op.Answer = driver.Answer{}
				op.Answer.Set(time.Now().UnixMicro(), 1<<len(statuses)-1, statuses)
				refused, b.Chosen = true, 0
			}
		}
		return refused, nil
	})
}

// Do implements [driver.Store].
func (f *Faulty) Do(ctx context.Context, b *driver.Batch) error {
	if answered, err := (*f.fault.Load())(ctx, b); answered {
		return err
	}
	return f.passthrough.Do(ctx, b)
}
