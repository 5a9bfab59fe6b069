// Package drivertest makes calls on stores, and stores of functions, for tests.
package drivertest

import (
	"context"

	"example.com/sash/driver"
)

// A Fake is a store over another one in whose place a function may answer.
type Fake struct {
	driver.Passthrough
	// On carries out a batch. It may call Next.Do.
	On func(ctx context.Context, b *driver.Batch) error
	// Without are powers of the store behind it that it does not have.
	Without driver.Powers
}

// Do implements [driver.Store].
func (f *Fake) Do(ctx context.Context, b *driver.Batch) error {
	if f.On != nil {
		return f.On(ctx, b)
	}
	return f.Next.Do(ctx, b)
}

// Powers implements [driver.Store].
func (f *Fake) Powers() driver.Powers { return f.Next.Powers() &^ f.Without }

// Over returns a store in which on answers for next.
func Over(next driver.Store, on func(ctx context.Context, b *driver.Batch) error) *Fake {
	return &Fake{Passthrough: driver.Passthrough{Next: next}, On: on}
}

// Apart returns a store that charges one subject at a time, as a cluster does where keys are in different slots.
func Apart(next driver.Store) *Fake {
	return Over(next, func(ctx context.Context, b *driver.Batch) error {
		if len(b.Ops) > 1 && b.Ops[0].Asks() {
			return driver.ErrApart
		}
		return next.Do(ctx, b)
	})
}

// Plain returns a store without the powers of next: it decides single calls.
func Plain(next driver.Store) *Fake {
	plain := Over(next, func(ctx context.Context, b *driver.Batch) error {
		return driver.OneByOne(ctx, b, func(ctx context.Context, op *driver.Op) (err error) {
			if !op.Asks() || op.ID != "" {
				return driver.ErrUnsupported
			}
			op.Answer, err = driver.Decide(ctx, next, op.Request)
			return err
		})
	})
	plain.Without = ^driver.Powers(0)
	return plain
}

// Calls is a store by single calls.
type Calls struct{ driver.Store }

// do carries out operations.
func (c Calls) do(ctx context.Context, mode driver.Mode, kind driver.Kind, sets ...driver.Settlement) (driver.Batch, error) {
	b := driver.Batch{Mode: mode}
	for _, set := range sets {
		b.Ops = append(b.Ops, driver.Op{Kind: kind, Settlement: set})
	}
	return b, c.Do(ctx, &b)
}

func charges(reqs []driver.Request) (sets []driver.Settlement) {
	for _, req := range reqs {
		sets = append(sets, driver.Settlement{Request: req})
	}
	return sets
}

func answers(b driver.Batch, err error) ([]driver.Answer, error) {
	var all []driver.Answer
	for i := range b.Ops {
		all = append(all, b.Ops[i].Answer)
	}
	return all, err
}

// Decide charges one subject.
func (c Calls) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return c.Once(ctx, "", req)
}

// Once charges one subject once for all calls with an ID.
func (c Calls) Once(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	b, err := c.do(ctx, driver.All, driver.Charge, driver.Settlement{Request: req, ID: id})
	return b.Ops[0].Answer, err
}

// All charges several subjects.
func (c Calls) All(ctx context.Context, reqs ...driver.Request) ([]driver.Answer, error) {
	return answers(c.do(ctx, driver.All, driver.Charge, charges(reqs)...))
}

// Each charges subjects by themselves.
func (c Calls) Each(ctx context.Context, reqs ...driver.Request) ([]driver.Op, error) {
	b, err := c.do(ctx, driver.Each, driver.Charge, charges(reqs)...)
	return b.Ops, err
}

// Any charges one of several subjects.
func (c Calls) Any(ctx context.Context, reqs ...driver.Request) (int, driver.Answer, error) {
	b, err := c.do(ctx, driver.Any, driver.Charge, charges(reqs)...)
	return b.Chosen, b.Ops[b.Chosen].Answer, err
}

// GiveBack gives units back.
func (c Calls) GiveBack(ctx context.Context, req driver.Request) (driver.Answer, error) {
	b, err := c.do(ctx, driver.All, driver.GiveBack, driver.Settlement{Request: req})
	return b.Ops[0].Answer, err
}

// Settle corrects charges, and returns the first error.
func (c Calls) Settle(ctx context.Context, sets ...driver.Settlement) error {
	b, err := c.do(ctx, driver.Each, driver.Settle, sets...)
	for i := range b.Ops {
		if err == nil {
			err = b.Ops[i].Err
		}
	}
	return err
}

// Extend makes charges anew, and returns the instant.
func (c Calls) Extend(ctx context.Context, sets ...driver.Settlement) (int64, error) {
	b, err := c.do(ctx, driver.All, driver.Extend, sets...)
	return b.Ops[0].Answer.At, err
}

// Forget forgets a subject.
func (c Calls) Forget(ctx context.Context, key string, policy *driver.Policy) error {
	_, err := c.do(ctx, driver.All, driver.Forget, driver.Settlement{Request: driver.Request{Key: key, Policy: policy}})
	return err
}

// Cool begins a cool-down.
func (c Calls) Cool(ctx context.Context, key string, begin driver.CoolDown) (driver.CoolDown, error) {
	req := driver.Request{Key: key, Policy: new(driver.Policy)}
	b := driver.Batch{Ops: []driver.Op{{Kind: driver.Cool, Settlement: driver.Settlement{Request: req}, CoolDown: begin}}}
	err := c.Do(ctx, &b)
	return b.Ops[0].CoolDown, err
}

// Of returns a store by single calls.
func Of(store driver.Store) Calls { return Calls{store} }
