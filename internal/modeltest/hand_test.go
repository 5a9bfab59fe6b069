package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

// handed: slots go from one caller to the next in one step, and lines take turns by the definition.
func (b *bench) handed() error {
	if !b.algorithm.Exact() {
		return nil
	}
	const units, window = 3, 20 * time.Second
	req, err := b.request("handed", 1, sash.Every(units, window))
	if err != nil {
		return err
	}
	req.MaySettle = true
	ctx, random := context.Background(), rand.New(rand.NewPCG(7, 8))
	var rota judge.Rota
	var held []int64
	hand := func(step int, line driver.Line) error {
		now := b.clock.Now().UnixMicro()
		for len(held) > 0 && held[0] <= now-window.Microseconds() {
			held = held[1:]
		}
		if i := random.IntN(5); i < len(held) {
			line.Back = held[i]
			held = append(held[:i:i], held[i+1:]...)
		}
		turn, admitted := rota.Ask(now, line, len(held) < units)
		answer, err := b.store.Hand(ctx, req, line)
		if err != nil {
			return err
		}
		if admitted {
			held = append(held, answer.At)
		}
		left := answer.Statuses()[0]
		if answer.Allowed() != admitted || left.Remaining != int64(units-len(held)) || answer.Firm || !turn && left.Retry != line.Stays {
			return fmt.Errorf("step %d: a line of turn %v got %+v with %d of %d held", step, turn, answer, len(held), units)
		}
		return nil
	}
	for step := range 600 {
		b.clock.Advance(time.Duration(1+random.IntN(600_000)) * time.Microsecond)
		if step%200 == 199 { // many lines come at once
			for name := range uint64(driver.MaxLines + 2) {
				if err := hand(step, driver.Line{Name: 10 + name, Most: 1, Stays: 2e6}); err != nil {
					return err
				}
				b.clock.Advance(time.Microsecond)
			}
		}
		err := hand(step, driver.Line{
			Name: 1 + random.Uint64N(4), Most: 1 + random.Int64N(3), Stays: 1 + random.Int64N(2e6), More: random.IntN(2) == 0,
		})
		if err != nil {
			return err
		}
		keys, err := b.scripts.client.Keys(ctx, fmt.Sprintf("*rota-%d:{", units)+b.store.Key(req.Key, req.Policy)+"}*").Result()
		if err != nil || len(keys) > 1 {
			return fmt.Errorf("the keys of a rota are %v (%v)", keys, err)
		}
		if len(keys) == 1 && b.scripts.client.PTTL(ctx, keys[0]).Val() < 0 {
			return fmt.Errorf("the key of a rota has no expiry")
		}
		if len(keys) == 1 && b.scripts.client.StrLen(ctx, keys[0]).Val() > 4+15*driver.MaxLines {
			return fmt.Errorf("the rota has more than %d lines", driver.MaxLines)
		}
	}
	b.clock.Advance(-time.Hour) // no line keeps its place for longer than it may
	for range 2 * units {
		answer, err := b.store.Hand(ctx, req, driver.Line{Name: 9, Most: 1, Stays: 1, More: true})
		if err != nil {
			return err
		}
		if left := answer.Statuses()[0]; !answer.Allowed() && left.Remaining > 0 {
			return fmt.Errorf("after a clock that went back a line got %+v", answer)
		}
		b.clock.Advance(window + time.Second)
	}
	return nil
}
