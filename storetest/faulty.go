package storetest

import (
	"context"
	"sync/atomic"

	"example.com/sash/driver"
)

// A Faulty store passes every call on to another store, or makes it fail: for tests of a program without its
// store. It is safe for concurrent use. Make one with NewFaulty.
type Faulty struct {
	pass  driver.Passthrough
	fault atomic.Pointer[fault]
}

// A fault is how calls fail.
type fault struct {
	err   error // nil hangs
	calls chan<- struct{}
}

// NewFaulty returns a store that passes calls on to next until [Faulty.Fail] or [Faulty.Hang] is called.
func NewFaulty(next driver.Store) *Faulty {
	return &Faulty{pass: driver.Passthrough{Next: next}}
}

// Fail makes every call from now on fail with err. Nil ends the fault.
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

// broken returns the error of a call, or nil while there is no fault.
func (f *Faulty) broken(ctx context.Context) error {
	now := f.fault.Load()
	switch {
	case now == nil:
		return nil
	case now.err != nil:
		return now.err
	case now.calls != nil:
		now.calls <- struct{}{}
	}
	<-ctx.Done()
	return ctx.Err()
}

var (
	_ driver.Decorator    = (*Faulty)(nil)
	_ driver.MultiStore   = (*Faulty)(nil)
	_ driver.Deduplicator = (*Faulty)(nil)
	_ driver.Settler      = (*Faulty)(nil)
	_ driver.Resetter     = (*Faulty)(nil)
	_ driver.Cooler       = (*Faulty)(nil)
	_ driver.Extender     = (*Faulty)(nil)
	_ driver.Blocker      = (*Faulty)(nil)
	_ driver.Hander       = (*Faulty)(nil)
)

// Unwrap implements [driver.Decorator].
func (f *Faulty) Unwrap() driver.Store { return f.pass.Next }

// Blocks implements [driver.Blocker].
func (f *Faulty) Blocks() {}

// Decide implements [driver.Store].
func (f *Faulty) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if err := f.broken(ctx); err != nil {
		return driver.Answer{}, err
	}
	return f.pass.Decide(ctx, req)
}

// DecideAll implements [driver.MultiStore].
func (f *Faulty) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	if err := f.broken(ctx); err != nil {
		return nil, err
	}
	return f.pass.DecideAll(ctx, reqs)
}

// DecideAny implements [driver.Chooser].
func (f *Faulty) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	if err := f.broken(ctx); err != nil {
		return 0, driver.Answer{}, err
	}
	return f.pass.DecideAny(ctx, reqs)
}

// DecideOnce implements [driver.Deduplicator].
func (f *Faulty) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	if err := f.broken(ctx); err != nil {
		return driver.Answer{}, err
	}
	return f.pass.DecideOnce(ctx, id, req)
}

// Hand implements [driver.Hander].
func (f *Faulty) Hand(ctx context.Context, req driver.Request, line driver.Line) (driver.Answer, error) {
	if err := f.broken(ctx); err != nil {
		return driver.Answer{}, err
	}
	return f.pass.Hand(ctx, req, line)
}

// Settle implements [driver.Settler].
func (f *Faulty) Settle(ctx context.Context, s driver.Settlement) error {
	if err := f.broken(ctx); err != nil {
		return err
	}
	return f.pass.Settle(ctx, s)
}

// Extend implements [driver.Extender].
func (f *Faulty) Extend(ctx context.Context, s driver.Settlement) (int64, error) {
	if err := f.broken(ctx); err != nil {
		return 0, err
	}
	return f.pass.Extend(ctx, s)
}

// Reset implements [driver.Resetter].
func (f *Faulty) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	if err := f.broken(ctx); err != nil {
		return err
	}
	return f.pass.Reset(ctx, key, policy)
}

// CoolDown implements [driver.Cooler].
func (f *Faulty) CoolDown(ctx context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	if err := f.broken(ctx); err != nil {
		return driver.CoolDown{}, err
	}
	return f.pass.CoolDown(ctx, key, c)
}
