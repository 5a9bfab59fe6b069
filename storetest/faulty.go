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
	return &Faulty{passthrough: passthrough{Next: next}}
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

// refusal returns the answer to a request while decisions are refused.
func (f *Faulty) refusal(req *driver.Request) (driver.Answer, bool) {
	now := f.fault.Load()
	if now == nil || now.refuse <= 0 || req.Cost == 0 || req.Forced {
		return driver.Answer{}, false
	}
	retry := now.refuse.Microseconds()
	statuses := make([]driver.Status, len(req.Policy.Limits))
	for i := range statuses {
		statuses[i] = driver.Status{Retry: retry, Release: retry, Reset: retry}
	}
	return driver.NewAnswer(time.Now().UnixMicro(), 1<<len(statuses)-1, statuses), true
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

// passed returns what call returns, or the error of the fault.
func passed[T any](ctx context.Context, f *Faulty, call func() (T, error)) (result T, err error) {
	if err := f.broken(ctx); err != nil {
		return result, err
	}
	return call()
}

// decided returns the answer of call, or the fault: its error or its refusal.
func (f *Faulty) decided(ctx context.Context, req *driver.Request, call func() (driver.Answer, error)) (driver.Answer, error) {
	return passed(ctx, f, func() (driver.Answer, error) {
		if answer, ok := f.refusal(req); ok {
			return answer, nil
		}
		return call()
	})
}

// allDecided is decided for requests of one call, of which none is a look, or all are.
func (f *Faulty) allDecided(ctx context.Context, reqs []driver.Request, call func() ([]driver.Answer, error)) ([]driver.Answer, error) {
	return passed(ctx, f, func() ([]driver.Answer, error) {
		var refusals []driver.Answer
		for i := range reqs {
			if answer, ok := f.refusal(&reqs[i]); ok {
				refusals = append(refusals, answer)
			}
		}
		if refusals != nil {
			return refusals, nil
		}
		return call()
	})
}

// Decide implements [driver.Store].
func (f *Faulty) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return f.decided(ctx, &req, func() (driver.Answer, error) { return f.passthrough.Decide(ctx, req) })
}

// DecideAll implements [driver.MultiStore].
func (f *Faulty) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	return f.allDecided(ctx, reqs, func() ([]driver.Answer, error) { return f.passthrough.DecideAll(ctx, reqs) })
}

// DecideEach implements [driver.Batcher].
func (f *Faulty) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	return f.allDecided(ctx, reqs, func() ([]driver.Answer, error) { return f.passthrough.DecideEach(ctx, reqs) })
}

// DecideAny implements [driver.Chooser].
func (f *Faulty) DecideAny(ctx context.Context, reqs []driver.Request) (chosen int, answer driver.Answer, err error) {
	answer, err = f.decided(ctx, &reqs[0], func() (answer driver.Answer, err error) {
		chosen, answer, err = f.passthrough.DecideAny(ctx, reqs)
		return answer, err
	})
	return chosen, answer, err
}

// DecideOnce implements [driver.Deduplicator].
func (f *Faulty) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	return f.decided(ctx, &req, func() (driver.Answer, error) { return f.passthrough.DecideOnce(ctx, id, req) })
}

// Settle implements [driver.Settler].
func (f *Faulty) Settle(ctx context.Context, sets ...driver.Settlement) error {
	_, err := passed(ctx, f, func() (none struct{}, err error) { return none, f.passthrough.Settle(ctx, sets...) })
	return err
}

// Extend implements [driver.Extender].
func (f *Faulty) Extend(ctx context.Context, sets ...driver.Settlement) (int64, error) {
	return passed(ctx, f, func() (int64, error) { return f.passthrough.Extend(ctx, sets...) })
}

// Reward implements [driver.Taker].
func (f *Faulty) Reward(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return passed(ctx, f, func() (driver.Answer, error) { return f.passthrough.Reward(ctx, req) })
}

// Reset implements [driver.Resetter].
func (f *Faulty) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	_, err := passed(ctx, f, func() (none struct{}, err error) { return none, f.passthrough.Reset(ctx, key, policy) })
	return err
}

// CoolDown implements [driver.Cooler].
func (f *Faulty) CoolDown(ctx context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	return passed(ctx, f, func() (driver.CoolDown, error) { return f.passthrough.CoolDown(ctx, key, c) })
}
