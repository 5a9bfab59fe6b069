package modeltest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// firm: a refusal is firm unless a charge may be settled, wherever that charge is.
func (b *bench) firm() error {
	if b.algorithm != sash.SlidingLog && b.algorithm != sash.SlidingBuckets {
		return nil
	}
	ctx := context.Background()
	const units = 20
	for later := range units + 1 {
		req, err := b.request(fmt.Sprint("firm", later), 1, sash.Every(units, time.Hour), sash.Every(units, 2*time.Hour))
		if err != nil {
			return err
		}
		for i := range units {
			req.MaySettle = i == later
			if _, err := b.store.Decide(ctx, req); err != nil {
				return err
			}
			b.clock.Advance(time.Minute)
		}
		for range 2 {
			res, err := b.store.Decide(ctx, req)
			if err != nil {
				return err
			}
			if res.Allowed() || res.Firm != (later == units) {
				return fmt.Errorf("the refusal after charge %d of %d could be settled is firm: %v", later, units, res.Firm)
			}
		}
	}
	return nil
}

// reset: a settlement of a charge from before a reset does nothing.
func (b *bench) reset() error {
	ctx := context.Background()
	req, err := b.request("reset", 4, sash.Every(10, time.Hour))
	if err != nil {
		return err
	}
	before, err := b.store.Decide(ctx, req)
	if err == nil {
		err = b.store.Reset(ctx, req.Key, req.Policy)
	}
	if err != nil {
		return err
	}
	b.clock.Advance(time.Microsecond)
	if _, err = b.store.Decide(ctx, req); err != nil {
		return err
	}
	look := req
	look.Cost = 0
	for _, units := range []int64{0, 9} {
		err := b.store.Settle(ctx, driver.Settlement{Request: req, At: before.At, Units: units})
		if err != nil {
			return err
		}
		if res, err := b.store.Decide(ctx, look); err != nil || res.Remaining() != 6 {
			return fmt.Errorf("%d of 10 are left after a charge from before a reset became %d, want 6 (%v)", res.Remaining(), units, err)
		}
	}
	return nil
}

// given: units that are given back out of a long log, under limits of two windows, are free at once, and only those.
func (b *bench) given() error {
	ctx := context.Background()
	wide, err := b.request("given", 2, sash.Every(1000, time.Hour), sash.Every(900, 10*time.Minute))
	if err != nil {
		return err
	}
	narrow, err := b.request("given", 2, sash.Every(900, 10*time.Minute))
	if err != nil {
		return err
	}
	truth := newOracle()
	ask := func(req driver.Request) error {
		res, err := b.store.Decide(ctx, req)
		if err == nil {
			err = truth.Check(b.clock.Now(), []driver.Request{req}, []driver.Answer{res})
		}
		return err
	}
	give := func(req driver.Request, units int64) error {
		req.Cost = units
		want, sure := truth.Reward(b.clock.Now(), req)
		if !sure {
			return nil
		}
		res, err := b.store.Reward(ctx, req)
		if err != nil {
			return err
		}
		if res.Charged != want {
			return fmt.Errorf("of %d units %d were given back, want %d", units, res.Charged, want)
		}
		req.Cost = 0
		if err := truth.Check(b.clock.Now(), []driver.Request{req}, []driver.Answer{res}); err != nil {
			return fmt.Errorf("the answer to a reward of %d: %w", units, err)
		}
		for _, cost := range []int64{0, 400, 3} {
			wide.Cost, narrow.Cost = cost, cost
			if err := errors.Join(ask(wide), ask(narrow)); err != nil {
				return fmt.Errorf("after %d units were given back: %w", units, err)
			}
		}
		return nil
	}
	for n := range 260 {
		b.clock.Advance(2 * time.Second)
		wide.Cost = 1 + int64(n%3)
		if err := ask(wide); err != nil {
			return err
		}
	}
	for i, units := range []int64{1, 4, 40, 133, 1, 7, 90} {
		if err := give([]driver.Request{wide, narrow}[i%2], units); err != nil {
			return err
		}
		b.clock.Advance(time.Minute)
	}
	if err := errors.Join(give(narrow, 5000), give(wide, 5000)); err != nil { // all of it
		return err
	}
	b.clock.Advance(time.Second)
	return errors.Join(ask(wide), give(wide, 1), give(narrow, 2))
}

// settled: units that are given back out of a long log are free at once, and only those; what a call took
// beyond its cost is charged where the call was.
func (b *bench) settled() error {
	ctx := context.Background()
	req, err := b.request("settled", 2, sash.Every(1000, time.Hour), sash.Every(900, 10*time.Minute))
	if err != nil {
		return err
	}
	truth := newOracle()
	ask := func(req driver.Request) (driver.Answer, error) {
		res, err := b.store.Decide(ctx, req)
		if err == nil {
			err = truth.Check(b.clock.Now(), []driver.Request{req}, []driver.Answer{res})
		}
		return res, err
	}
	var results []driver.Answer
	for range 300 {
		b.clock.Advance(time.Second)
		res, err := ask(req)
		if err != nil {
			return err
		}
		results = append(results, res)
	}
	worth := []int64{0, 0, 1, 40, 0, 0, 0, 7}
	for n, i := range []int{299, 298, 63, 64, 150, 0, 1, 297} {
		set := driver.Settlement{Request: req, At: results[i].At, Source: results[i].Source, Units: worth[n%len(worth)], ID: fmt.Sprint("s", i)}
		truth.Settle(b.clock.Now(), set)
		for range 2 { // once is enough
			if err := b.store.Settle(ctx, set); err != nil {
				return err
			}
		}
		for _, cost := range []int64{0, 700, 4} {
			look := req
			look.Cost = cost
			if _, err := ask(look); err != nil {
				return fmt.Errorf("after charge %d was settled: %w", i, err)
			}
		}
		b.clock.Advance(time.Minute)
	}
	return nil
}

// moved: a charge that a clock that went back has moved takes nothing from others when it is given back, and
// what it took more is charged all the same.
func (b *bench) moved() error {
	if !b.algorithm.Exact() {
		return nil
	}
	ctx := context.Background()
	for i, c := range []struct{ units, left int64 }{{0, 8}, {9, 4}} {
		req, err := b.request(fmt.Sprint("moved", i), 5, sash.Every(20, time.Minute))
		if err != nil {
			return err
		}
		look, other := req, req
		look.Cost, other.Cost = 0, 7
		res, err := b.store.Decide(ctx, req)
		if err != nil {
			return err
		}
		b.clock.Advance(-time.Second)
		if _, err := b.store.Decide(ctx, look); err != nil {
			return err
		}
		b.clock.Advance(2 * time.Second)
		if _, err := b.store.Decide(ctx, other); err != nil {
			return err
		}
		if err := b.store.Settle(ctx, driver.Settlement{Request: req, At: res.At, Source: res.Source, Units: c.units, ID: req.Key}); err != nil {
			return err
		}
		if res, err = b.store.Decide(ctx, look); err != nil || res.Remaining() != c.left {
			return fmt.Errorf("%d of 20 are left after a charge that was moved became %d, want %d (%v)", res.Remaining(), c.units, c.left, err)
		}
	}
	return nil
}
