package sash_test

import (
	"errors"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func TestBlocksThatCannotBe(t *testing.T) {
	for _, b := range []sash.Block{
		{Refusals: 3}, {Window: time.Second}, {Refusals: -1, For: time.Minute}, {Refusals: 101, For: time.Minute},
		{For: -1}, {For: time.Nanosecond}, {For: 31 * 24 * time.Hour}, {For: time.Minute, Window: -1},
		{For: time.Minute, Window: 25 * time.Hour}, {For: time.Minute, Window: time.Microsecond + 1},
	} {
		if l, err := sash.New(memstore.New(nil), &sash.Options{Block: b}, sash.PerMinute(1)); !errors.Is(err, sash.ErrInvalidLimit) {
			t.Errorf("%+v: %v, %v", b, l, err)
		}
	}
	l := newLimiter(t, memstore.New(nil), &sash.Options{Block: sash.Block{For: time.Hour}}, sash.PerMinute(1))
	if got := l.Policy().Block; got != (driver.Block{Refusals: 5, Window: 60e6, Length: 3600e6}) {
		t.Errorf("the default block is %+v", got)
	}
}

// Decorators that answer or decide for the store keep blocks what they are: each refusal counts, and no sum of calls.
func TestABlockBehindDecorators(t *testing.T) {
	for name, store := range layers(t, memstore.New(nil)) {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, store, &sash.Options{Block: sash.Block{Refusals: 10, For: time.Hour}}, sash.PerHour(3))
			results := make(chan sash.Result)
			for range 30 {
				go func() {
					res, err := l.Allow(t.Context(), name)
					if err != nil {
						t.Error(err)
					}
					results <- res
				}()
			}
			admitted, blocked := 0, 0
			for range 30 {
				res := <-results
				if res.Allowed {
					admitted++
				}
				if res.Blocked {
					blocked++
				}
			}
			if admitted != 3 || blocked != 30-3-9 {
				t.Errorf("of 30 calls %d were admitted and %d were blocked, want 3 and 18", admitted, blocked)
			}
		})
	}
}
