package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// cooled: random cool-downs, on a clock that also goes back, are those of memory.
func (b *bench) cooled() error {
	if b.algorithm != driver.SlidingLog {
		return nil
	}
	ctx, memory := context.Background(), memstore.New(&memstore.Options{Now: b.clock.Now})
	random := rand.New(rand.NewPCG(3, 9))
	for i := range 400 {
		step := time.Duration(random.IntN(20e6)) * time.Microsecond
		if i%20 == 19 {
			step = -step
		}
		b.clock.Advance(step)
		begin := driver.CoolDown{Length: max(0, int64(random.IntN(16e6))-4e6), Guessed: random.IntN(2) == 0}
		want, err := memory.CoolDown(ctx, "cooled", begin)
		got, err2 := b.store.CoolDown(ctx, "cooled", begin)
		if err := errors.Join(err, err2); err != nil || got != want {
			return fmt.Errorf("step %d: %+v answers %+v, %v; in memory %+v", i, begin, got, err, want)
		}
	}
	return b.cooledOnRedis(ctx)
}

// cooledOnRedis: a key expires when its cool-down is no longer kept, and not before, and a look writes nothing.
func (b *bench) cooledOnRedis(ctx context.Context) error {
	for i, length := range []time.Duration{time.Second, 1500*time.Millisecond + time.Microsecond, time.Minute} {
		key := fmt.Sprint("expiry", i)
		began := time.Now()
		if _, err := b.plain.CoolDown(ctx, key, driver.CoolDown{Length: length.Microseconds()}); err != nil {
			return err
		}
		before, err := b.changes()
		if err != nil {
			return err
		}
		if _, err := b.plain.CoolDown(ctx, key, driver.CoolDown{}); err != nil {
			return err
		}
		if after, err := b.changes(); err != nil || after != before {
			return fmt.Errorf("a look wrote: %s changes, before %s (%v)", after, before, err)
		}
		names, err := b.scripts.client.Keys(ctx, "*:"+key).Result()
		if err != nil || len(names) != 1 {
			return fmt.Errorf("the keys of a cool-down are %q, %v", names, err)
		}
		lives, err := b.scripts.client.PTTL(ctx, names[0]).Result()
		if err != nil {
			return err
		}
		kept := length + max(length, 10*time.Second)
		if lives > kept+2*time.Millisecond || lives < kept-time.Since(began)-time.Millisecond {
			return fmt.Errorf("a cool-down of %v lives for %v, want %v", length, lives, kept)
		}
	}
	return nil
}
