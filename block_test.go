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
