package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// extended: charges that are extended count from then on, and those that are gone stay gone, as in memory.
func (b *bench) extended() error {
	if !b.algorithm.Extends() {
		return nil
	}
	req, err := b.request("extended", 1, sash.Every(20, time.Minute))
	if err != nil {
		return err
	}
	req.MaySettle = true
	ctx, random, memory := context.Background(), rand.New(rand.NewPCG(5, 6)), memstore.New(&memstore.Options{Now: b.clock.Now})
	var charges []int64 // of which some have left
	for range 300 {
		b.clock.Advance(time.Duration(random.IntN(int(6 * time.Second))))
		for range min(2, len(charges)) {
			i := len(charges) - 1 - random.IntN(min(40, len(charges)))
			set := driver.Settlement{Request: req, At: charges[i]}
			got, err := b.store.Extend(ctx, set)
			want, err2 := memory.Extend(ctx, set)
			if err := errors.Join(err, err2); err != nil || got != want {
				return fmt.Errorf("a charge of %d was extended to %d, in memory to %d (%v)", set.At, got, want, err)
			}
			if got > 0 {
				charges[i] = got
			}
		}
		got, err := b.store.Decide(ctx, req)
		want, err2 := memory.Decide(ctx, req)
		if err := errors.Join(err, err2); err != nil || got.At != want.At || got.Allowed() != want.Allowed() {
			return fmt.Errorf("a call got %s, in memory %s (%v)", shown(&got), shown(&want), err)
		}
		if got.Allowed() {
			charges = append(charges, got.At)
		}
	}
	return b.broughtForward()
}

// broughtForward: a booking starts now if it has room now, and otherwise stays where it is, as one that has started does.
func (b *bench) broughtForward() error {
	s := b.scenario(sash.Every(2, time.Minute))
	s.oracle, s.settles = nil, true
	book := func(wait time.Duration) driver.Answer {
		answer := s.call(2, 10*time.Minute)
		if answer.Delay != wait.Microseconds() {
			s.fail("a booking starts in %d µs, want %v", answer.Delay, wait)
		}
		return answer
	}
	brought := func(answer driver.Answer, want int64) {
		at, err := b.store.Extend(context.Background(), driver.Settlement{Request: s.request(2), At: answer.At, Delay: answer.Delay})
		if err != nil || at != want {
			s.fail("a booking was brought forward to %d, want %d (%v)", at, want, err)
		}
	}
	first, second := book(0), book(time.Minute)
	brought(second, 0)
	third := book(2 * time.Minute)
	s.back(2, first)
	brought(second, b.clock.Now().UnixMicro())
	brought(third, 0)
	b.clock.Advance(2*time.Minute + time.Second) // the third has started
	brought(third, 0)
	book(59 * time.Second)
	return s.err
}
