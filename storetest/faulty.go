package storetest

import (
	"context"
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

// A fault is what happens to calls: an error, a refusal, a delay, or none of them, which hangs.
type fault struct {
	err    error
	refuse time.Duration
	slow   time.Duration
	calls  chan<- struct{}
}

// NewFaulty returns a store that passes calls on to next until [Faulty.Fail], [Faulty.Hang], [Faulty.Slow] or
// [Faulty.Refuse] is called. The last one counts.
func NewFaulty(next driver.Store) *Faulty {
	if driver.Nil(next) {
		panic("storetest: NewFaulty needs a store, such as memstore.New(nil)")
	}
	return &Faulty{passthrough: passthrough{Store: next}}
}

// Fail makes every call from now on fail with err. Nil ends whatever fault there is.
func (f *Faulty) Fail(err error) {
	if err == nil {
		f.fault.Store(nil)
		return
	}
	f.fault.Store(&fault{err: err})
}

// Hang makes every call from now on wait until its context ends. It sends on calls, unless that is nil, when
// a call starts to wait.
func (f *Faulty) Hang(calls chan<- struct{}) { f.fault.Store(&fault{calls: calls}) }

// Slow makes every call from now on wait for d, above zero, before it is passed on, or until its context ends.
func (f *Faulty) Slow(d time.Duration) { f.fault.Store(&fault{slow: d}) }

// Refuse refuses every decision from now on, by all its limits, with a RetryAfter of d, which is above zero. Nothing is
// charged. Calls that decide nothing, such as Peek, Settle and Reset, and Penalize are passed on.
func (f *Faulty) Refuse(d time.Duration) { f.fault.Store(&fault{refuse: d}) }

// Do implements [driver.Store].
func (f *Faulty) Do(ctx context.Context, b *driver.Batch) error {
	if err := f.broken(ctx); err != nil {
		return err
	}
	refused := false
	if now := f.fault.Load(); now != nil && now.refuse > 0 {
		for i := range b.Ops {
			if op := &b.Ops[i]; op.Kind == driver.Charge && op.Cost > 0 && !op.Forced {
				op.Answer, refused, b.Chosen = refusal(op, now.refuse.Microseconds()), true, 0
			}
		}
	}
	if refused {
		return nil
	}
	return f.passthrough.Do(ctx, b)
}

// refusal returns the answer to a charge while decisions are refused.
func refusal(op *driver.Op, retry int64) (answer driver.Answer) {
	statuses := make([]driver.Status, len(op.Policy.Limits))
	for i := range statuses {
		statuses[i] = driver.Status{Retry: retry, Release: retry, Reset: retry}
	}
	answer.Set(time.Now().UnixMicro(), 1<<len(statuses)-1, statuses)
	return answer
}

// broken returns the error of a call, or nil if it is passed on or refused.
func (f *Faulty) broken(ctx context.Context) error {
	now := f.fault.Load()
	switch {
	case now == nil, now.refuse > 0:
		return nil
	case now.err != nil:
		return now.err
	case now.slow > 0:
		select {
		case <-time.After(now.slow):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	case now.calls != nil:
		now.calls <- struct{}{}
	}
	<-ctx.Done()
	return ctx.Err()
}
