// Package drivertest makes calls on stores, and stores of functions, for tests.
package drivertest

import (
	"cmp"
	"context"

	"example.com/sash/driver"
)

// A Fake is a store over another store. A function may answer in the other store's place.
type Fake struct {
	driver.Passthrough
	// On carries out a batch. It may call Store.Do.
	On func(ctx context.Context, b *driver.Batch) error
	// Without are powers of the store behind it that it does not have.
	Without driver.Powers
}

// Do implements [driver.Store].
func (f *Fake) Do(ctx context.Context, b *driver.Batch) error {
	if f.On != nil {
		return f.On(ctx, b)
	}
	return f.Store.Do(ctx, b)
}

// Powers implements [driver.Store].
func (f *Fake) Powers() driver.Powers { return f.Store.Powers() &^ f.Without }

// Over returns a store in which on answers for next.
func Over(next driver.Store, on func(ctx context.Context, b *driver.Batch) error) *Fake {
	return &Fake{Passthrough: driver.Passthrough{Store: next}, On: on}
}

// Plain returns a store without the powers of next: it decides single calls.
func Plain(next driver.Store) *Fake {
	plain := Over(next, func(ctx context.Context, b *driver.Batch) error {
		return driver.OneByOne(ctx, b, func(ctx context.Context, op *driver.Op) (err error) {
			if op.Kind != driver.Charge || op.ID != "" {
				return driver.ErrUnsupported
			}
			op.Answer, err = driver.Decide(ctx, next, op.Request)
			return err
		})
	})
	plain.Without = ^driver.Powers(0)
	return plain
}

// Calls are the calls of a store, one operation or batch each.
type Calls struct{ driver.Store }

// Of returns the calls of a store.
func Of(store driver.Store) Calls { return Calls{store} }

func (c Calls) do(ctx context.Context, b *driver.Batch, kind driver.Kind, sets ...driver.Settlement) (answers []driver.Answer, err error) {
	for _, set := range sets {
		b.Ops = append(b.Ops, driver.Op{Kind: kind, Settlement: set})
	}
	err = c.Do(ctx, b)
	for i := range b.Ops {
		answers = append(answers, b.Ops[i].Answer)
	}
	return answers, err
}

func charges(reqs []driver.Request) (sets []driver.Settlement) {
	for _, req := range reqs {
		sets = append(sets, driver.Settlement{Request: req})
	}
	return sets
}

// Decide charges one subject.
func (c Calls) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return c.Once(ctx, "", req)
}

// Once charges one subject once for all calls with an ID.
func (c Calls) Once(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	answers, err := c.do(ctx, new(driver.Batch), driver.Charge, driver.Settlement{Request: req, ID: id})
	return answers[0], err
}

// All charges several subjects.
func (c Calls) All(ctx context.Context, reqs ...driver.Request) ([]driver.Answer, error) {
	return c.do(ctx, new(driver.Batch), driver.Charge, charges(reqs)...)
}

// Each charges subjects by themselves.
func (c Calls) Each(ctx context.Context, reqs ...driver.Request) ([]driver.Op, error) {
	b := driver.Batch{Mode: driver.Each}
	_, err := c.do(ctx, &b, driver.Charge, charges(reqs)...)
	return b.Ops, err
}

// Any charges one of several subjects.
func (c Calls) Any(ctx context.Context, reqs ...driver.Request) (int, driver.Answer, error) {
	b := driver.Batch{Mode: driver.Any}
	answers, err := c.do(ctx, &b, driver.Charge, charges(reqs)...)
	return b.Chosen, answers[b.Chosen], err
}

// GiveBack gives units back.
func (c Calls) GiveBack(ctx context.Context, req driver.Request) (driver.Answer, error) {
	answers, err := c.do(ctx, new(driver.Batch), driver.GiveBack, driver.Settlement{Request: req})
	return answers[0], err
}

// Settle corrects charges, and returns the first error.
func (c Calls) Settle(ctx context.Context, sets ...driver.Settlement) error {
	b := driver.Batch{Mode: driver.Each}
	_, err := c.do(ctx, &b, driver.Settle, sets...)
	for i := range b.Ops {
		err = cmp.Or(err, b.Ops[i].Err)
	}
	return err
}

// Extend makes charges anew, and returns the instant.
func (c Calls) Extend(ctx context.Context, sets ...driver.Settlement) (int64, error) {
	answers, err := c.do(ctx, new(driver.Batch), driver.Extend, sets...)
	return answers[0].At, err
}

// Forget forgets a subject.
func (c Calls) Forget(ctx context.Context, key string, policy *driver.Policy) error {
	_, err := c.do(ctx, new(driver.Batch), driver.Forget, driver.Settlement{Request: driver.Request{Key: key, Policy: policy}})
	return err
}

// Cool begins a cool-down.
func (c Calls) Cool(ctx context.Context, key string, begin driver.CoolDown) (driver.CoolDown, error) {
	of := driver.Settlement{Request: driver.Request{Key: key, Policy: new(driver.Policy)}}
	b := driver.Batch{Ops: []driver.Op{{Kind: driver.Cool, Settlement: of, CoolDown: begin}}}
	err := c.Store.Do(ctx, &b)
	return b.Ops[0].CoolDown, err
}
