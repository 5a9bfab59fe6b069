package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// extended: charges that are extended count from then on, and those that are gone stay gone.
func (b *bench) extended() error {
	if !b.algorithm.Extends() {
		return nil
	}
	const units, window = 20, time.Minute
	req, err := b.request("extended", 1, sash.Every(units, window))
	if err != nil {
		return err
	}
	req.MaySettle = true
	ctx, random := context.Background(), rand.New(rand.NewPCG(5, 6))
	var held, past []int64
	for range 300 {
		b.clock.Advance(time.Duration(random.IntN(int(window / 10))))
		now, live := b.clock.Now().UnixMicro(), held[:0:0]
		for _, at := range held {
			if at > now-window.Microseconds() {
				live = append(live, at)
			} else {
				past = append(past, at)
			}
		}
		held = live
		if len(past) > 0 && random.IntN(3) == 0 {
			at := past[random.IntN(len(past))]
			if to, err := b.store.Extend(ctx, driver.Settlement{Request: req, At: at}); err != nil || to != 0 {
				return fmt.Errorf("a charge that has left was extended to %d (%v)", to, err)
			}
		}
		if i := random.IntN(len(held) + 1); i < len(held) {
			at, err := b.store.Extend(ctx, driver.Settlement{Request: req, At: held[i]})
			if err != nil || at != now {
				return fmt.Errorf("a charge that is held was extended to %d at %d (%v)", at, now, err)
			}
			held[i] = at
		}
		answer, err := b.store.Decide(ctx, req)
		if err != nil || answer.Allowed() != (len(held) < units) {
			return fmt.Errorf("with %d of %d held a call was allowed: %v (%v)", len(held), units, answer.Allowed(), err)
		}
		if answer.Allowed() {
			held = append(held, answer.At)
		}
	}
	return b.broughtForward()
}

// broughtForward: a booking starts now if it has room now, and otherwise stays where it is, as one that has started does.
func (b *bench) broughtForward() error {
	req, err := b.request("brought", 2, sash.Every(2, time.Minute))
	if err != nil {
		return err
	}
	req.MaySettle, req.Within = true, (10 * time.Minute).Microseconds()
	ctx := context.Background()
	book := func() (driver.Settlement, error) {
		answer, err := b.store.Decide(ctx, req)
		return driver.Settlement{Request: req, At: answer.At, Delay: answer.Delay}, err
	}
	wait := func(d time.Duration, set driver.Settlement, err error) error {
		if set.Delay != d.Microseconds() {
			err = fmt.Errorf("a booking starts in %d µs, want %v (%v)", set.Delay, d, err)
		}
		return err
	}
	brought := func(set driver.Settlement, want int64) error {
		at, err := b.store.Extend(ctx, set)
		if err != nil || at != want {
			return fmt.Errorf("a booking was brought forward to %d, want %d (%v)", at, want, err)
		}
		return nil
	}
	now := func() int64 { return b.clock.Now().UnixMicro() }
	first, err := book()
	second, err2 := book()
	if err := errors.Join(err, wait(time.Minute, second, err2), brought(second, 0)); err != nil {
		return err
	}
	third, err := book()
	if err := errors.Join(wait(2*time.Minute, third, err), b.store.Settle(ctx, first), brought(second, now()), brought(third, 0)); err != nil {
		return err
	}
	b.clock.Advance(2*time.Minute + time.Second) // the third has started
	if err := brought(third, 0); err != nil {
		return err
	}
	last, err := book()
	return wait(59*time.Second, last, err)
}
