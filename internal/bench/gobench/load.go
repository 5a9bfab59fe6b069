package gobench

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
)

// A load is the calls that a limiter meets.
type load struct {
	name     string
	limits   []sash.Limit
	keys     int
	parallel bool
	refused  bool // the window is full and stays full
}

// loads are chosen so that a window is as full as the contender's speed makes it, and no call is refused
// where none is meant to be.
func loads() []load {
	short := []sash.Limit{sash.Every(50_000, time.Millisecond)}
	keyed := []sash.Limit{sash.Every(10_000, 20*time.Millisecond)}
	two := []sash.Limit{sash.Every(50_000, time.Millisecond), sash.Every(100_000, 2*time.Millisecond)}
	full := []sash.Limit{sash.PerHour(100)}
	fullTwo := []sash.Limit{sash.PerHour(100), sash.PerDay(1000)}
	return []load{
		{name: "admitted, one key", limits: short, keys: 1},
		{name: "admitted, 1,000 keys", limits: keyed, keys: 1000},
		{name: "refused, one key", limits: full, keys: 1, refused: true},
		{name: "admitted, one key, parallel", limits: short, keys: 1, parallel: true},
		{name: "admitted, 1,000 keys, parallel", limits: keyed, keys: 1000, parallel: true},
		{name: "refused, one key, parallel", limits: full, keys: 1, parallel: true, refused: true},
		{name: "two windows, admitted, one key", limits: two, keys: 1},
		{name: "two windows, refused, one key", limits: fullTwo, keys: 1, refused: true},
	}
}

// fits reports whether a contender can meet a load.
func (l load) fits(c contender) bool {
	if len(l.limits) > 1 && !c.multi {
		return false
	}
	return !l.refused || !c.waits
}

// bench is the benchmark of one contender under one load.
func (l load) bench(c contender) func(b *testing.B) {
	keys := make([]string, l.keys)
	for i := range keys {
		keys[i] = "client:" + strconv.Itoa(i)
	}
	return func(b *testing.B) {
		limiter := c.open(l.limits...)
		defer limiter.close()
		for _, key := range keys {
			limiter.allow(key)
		}
		for more := l.refused; more; {
			more = limiter.allow(keys[0])
		}
		b.ReportAllocs()
		b.ResetTimer()
		if l.parallel {
			var workers atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(workers.Add(1)) * len(keys) / 2; pb.Next(); i++ {
					limiter.allow(keys[i%len(keys)])
				}
			})
			return
		}
		for i := range b.N {
			limiter.allow(keys[i%len(keys)])
		}
	}
}
