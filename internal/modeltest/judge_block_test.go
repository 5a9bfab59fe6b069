package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// blocked: exactly the refusals of a window begin a block, of the subjects that refuse, and it lasts as long as it should.
func (b *bench) blocked() error {
	ctx, key := context.Background(), 0
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 11))
		by := driver.Block{Refusals: 1 + int64(seed)%4, Window: 15e6 * (1 + rng.Int64N(8)), Length: 30e6 * (1 + rng.Int64N(9))}
		type subject struct {
			req      driver.Request
			refusals []int64
			ends     int64
			admitted int64
		}
		var subjects [2]subject
		for i := range subjects {
			key++
			req, err := b.request(fmt.Sprint("blocked", key), 1, sash.Every(2, 3*time.Minute), sash.Every(50, 3*time.Hour))
			if err != nil {
				return err
			}
			req.Policy.Block = by
			subjects[i].req = req
		}
		last, made := "", int64(0) // the last call with an ID that was admitted, and when
		for step := range 80 {
			b.clock.Advance(time.Duration(rng.IntN(4)) * 15 * time.Second)
			now := b.clock.Now().UnixMicro()
			ended := slices.ContainsFunc(subjects[:], func(s subject) bool {
				return s.ends > 0 && s.ends <= now || len(s.refusals) > 0 && s.refusals[0] <= now-by.Window
			})
			if rng.IntN(15) == 0 && !ended { // a store may have forgotten what had ended before the clock went back
				b.clock.Advance(-3 * time.Minute)
				now = b.clock.Now().UnixMicro()
			}
			some := [...][]subject{subjects[:1], subjects[1:], subjects[1:], subjects[:], subjects[:]}[rng.IntN(5)]
			reqs, out, was := make([]driver.Request, len(some)), false, some[0].ends
			for i := range some {
				s := &some[i]
				reqs[i] = s.req
				s.ends = min(s.ends, now+by.Length)
				out = out || s.ends > now
			}
			if len(some) == 1 && rng.IntN(4) == 0 {
				reqs[0].Cost = 0
			}
			var answers []driver.Answer
			var err error
			switch {
			case len(some) == 2:
				answers, err = b.store.DecideAll(ctx, reqs)
			case &some[0] == &subjects[1]:
				answers = make([]driver.Answer, 1)
				answers[0], err = b.store.Decide(ctx, reqs[0])
			case rng.IntN(4) == 0 && reqs[0].Cost > 0 && last != "" && now-made < driver.RepeatTime.Microseconds(): // a call that was admitted before
				res, err := b.store.DecideOnce(ctx, last, reqs[0])
				if err != nil || !res.Allowed() || res.Blocked {
					return fmt.Errorf("step %d: a repetition got %+v, %v", step, res, err)
				}
				some[0].ends = was // it does not look at the block
				continue
			default:
				answers = make([]driver.Answer, 1)
				if reqs[0].Cost == 0 {
					answers[0], err = b.store.Decide(ctx, reqs[0])
					break
				}
				id := fmt.Sprint("id", seed, step)
				if answers[0], err = b.store.DecideOnce(ctx, id, reqs[0]); err == nil && answers[0].Allowed() {
					last, made = id, now
				}
			}
			if err != nil {
				return err
			}
			for i := range some {
				s, got := &some[i], &answers[i]
				if all := answers[0].Allowed() && answers[len(some)-1].Allowed(); all {
					s.admitted += reqs[i].Cost
				}
				if !out && !got.Allowed() && reqs[i].Cost > 0 {
					s.ends = 0
					for k := range s.refusals {
						s.refusals[k] = min(s.refusals[k], now)
					}
					s.refusals = append(slices.DeleteFunc(s.refusals, func(at int64) bool { return at <= now-by.Window }), now)
					if int64(len(s.refusals)) == by.Refusals {
						s.refusals, s.ends = nil, now+by.Length
					}
				}
				if got.Blocked != (s.ends > now) || got.Blocked && got.Retry() < s.ends-now {
					return fmt.Errorf("seed %d, step %d, subject %d: blocked %v for %d, want until %d at %d", seed, step, i, got.Blocked, got.Retry(), s.ends, now)
				}
				if name := b.store.Key(s.req.Key, s.req.Policy); s.ends > now {
					keys, err := b.scripts.client.Keys(ctx, "*block:{"+name+"}*").Result()
					if err != nil || len(keys) != 1 {
						return fmt.Errorf("the keys of a block are %v (%v)", keys, err)
					}
					if left := b.scripts.client.PTTL(ctx, keys[0]).Val(); left < 0 {
						return fmt.Errorf("the key of a block has no expiry")
					}
				}
			}
		}
		b.clock.Advance(10 * time.Minute) // longer than a block
		for i := range subjects {
			look := subjects[i].req
			look.Cost = 0
			res, err := b.store.Decide(ctx, look)
			if err != nil {
				return err
			}
			if left := res.Statuses()[1].Remaining; b.algorithm.Exact() && left != 50-subjects[i].admitted {
				return fmt.Errorf("%d of 50 are left, and %d calls were admitted", left, subjects[i].admitted)
			}
		}
	}
	return nil
}
