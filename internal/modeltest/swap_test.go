package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash/driver"
)

// swapped: random swaps leave the text of the definition, a look writes nothing, and the text expires when it should.
func (b *bench) swapped() error {
	if b.algorithm != driver.SlidingLog {
		return nil
	}
	ctx := context.Background()
	random := rand.New(rand.NewPCG(7, 1))
	texts := []string{"", "a", "b", "one that is longer", "b and more"}
	is, process := "", ""
	for i := range 200 {
		w := driver.Swap{Old: texts[random.IntN(len(texts))], New: texts[random.IntN(len(texts))], Lasts: 60_000_000}
		if w.New == "" {
			w.New = w.Old
		}
		before, err := b.changes()
		if err != nil {
			return err
		}
		writes := w.New != w.Old && is == w.Old
		if writes {
			is = w.New
		}
		got, err := b.plain.Swap(ctx, "swapped", w)
		if err != nil || got.Text != is || got.At != b.clock.Now().UnixMicro() || process != "" && got.Process != process {
			return fmt.Errorf("step %d: %+v answers %+v, %v; by the definition %q", i, w, got, err, is)
		}
		process = got.Process
		if after, err := b.changes(); err != nil || (after != before) != writes {
			return fmt.Errorf("step %d: %+v left %s changes, before %s (%v)", i, w, after, before, err)
		}
	}
	lives, err := b.scripts.client.PTTL(ctx, "sash:text:swapped").Result()
	if err != nil || lives <= 0 || lives > time.Minute {
		return fmt.Errorf("a text of a minute lives for %v, %v", lives, err)
	}
	return nil
}
