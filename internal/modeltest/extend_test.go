package modeltest

import (
	"context"
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
