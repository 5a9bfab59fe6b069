package outgoing

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A bucket is what this process knows about one bucket or account. The zero bucket knows nothing.
type bucket struct {
	cool   coolDown          // the last one
	looked time.Time         // when this process last looked for levels of other processes
	levels map[window]levels // of its limits
	sent   int64             // units that this process has charged
	ways   ways              // of its requests
	full   time.Time         // until then, waiting requests are paced, because a window is full
	length time.Duration     // of its shortest window; zero if it has none
	until  time.Time         // when this bucket may be forgotten
}

// keep keeps the bucket at least until a time.
func (b *bucket) keep(until time.Time) {
	if until.After(b.until) {
		b.until = until
	}
}

// holds reports whether a cool-down or a lowered limit holds calls back.
func (b *bucket) holds(now time.Time) bool {
	for _, l := range b.levels {
		if l.fallen.lowers(now) || l.held.lowers(now) {
			return true
		}
	}
	return b.cool.end.After(now)
}

// A sweep removes buckets whose time is over. It runs at bucketsSweep keys, and then at twice the number of keys that the
// last sweep kept. At bucketsMost keys it removes half of them, so their number is bounded whatever keys a route returns.
const (
	bucketsSweep = 1024
	bucketsMost  = 1 << 16
	bucketKept   = time.Hour // after its last use; longer than a request takes
)

// buckets holds the buckets of a Transport by key. State that is removed early is read from the store or learnt again.
type buckets struct {
	mu    sync.Mutex
	all   map[string]*bucket // guarded by mu, as are the buckets
	sweep int                // the number of keys at the next sweep, guarded by mu
}

func newBuckets() *buckets { return &buckets{all: map[string]*bucket{}, sweep: bucketsSweep} }

// lock locks mu and returns a bucket. The caller unlocks mu.
func (c *buckets) lock(key string) *bucket {
	c.mu.Lock()
	return c.at(key, time.Now())
}

// at returns a bucket. The caller holds mu.
func (c *buckets) at(key string, now time.Time) *bucket {
	b, ok := c.all[key]
	if !ok || now.After(b.until) {
		b = new(bucket)
	}
	b.keep(now.Add(bucketKept))
	if !ok && len(c.all) >= c.sweep {
		maps.DeleteFunc(c.all, func(_ string, b *bucket) bool { return now.After(b.until) })
		for _, holds := range []bool{false, true} { // those that hold calls back are last
			for other, b := range c.all {
				if len(c.all) <= bucketsMost/2 {
					break
				}
				if holds || !b.holds(now) {
					delete(c.all, other)
				}
			}
		}
		c.sweep = max(bucketsSweep, 2*len(c.all))
	}
	c.all[key] = b
	return b
}

// ways are the durations of a bucket's last requests, from the charge to the first byte of the response. The second list is
// of requests on new connections. They take longer and are rarer, and in one list the others would displace them.
type ways [2][]time.Duration

const (
	waysKept    = 100                    // in each list
	fewestWays  = 4                      // with fewer the spread is unknown: a tenth of the window,
	unknownMost = time.Second            // and no more than this
	spreadLeast = 100 * time.Millisecond // or a fiftieth of the window if that is less: any process can be late
	spreadMost  = 2 * time.Second        // or a quarter of the window. A new connection whose first packet is lost takes a second more
	spreadSteps = 25                     // of the largest spread, so that few different windows reach the store
)

// took records how long a request took, and whether its connection was new.
func (c *buckets) took(key string, d time.Duration, fresh bool) {
	b := c.lock(key)
	defer c.mu.Unlock()
	last := &b.ways[0]
	if fresh {
		last = &b.ways[1]
	}
	if len(*last) == waysKept {
		*last = slices.Delete(*last, 0, 1)
	}
	*last = append(*last, d)
}

// bounds returns how many durations are known, and the least and the longest of them.
func (w *ways) bounds() (n int, least, longest time.Duration) {
	for _, list := range w {
		for _, d := range list {
			if n++; n == 1 {
				least = d
			}
			least, longest = min(least, d), max(longest, d)
		}
	}
	return n, least, longest
}

// spread returns by how much the store's window must be longer: δ in docs/algorithms.md, the difference between the
// travel times to the API. The measured times include the API and the way back, so their differences are at least as
// large once some request was quick in both. With n measurements, the spread is longer by 8/n, because the next
// request may exceed them all. If travel times are uniformly distributed, the next one is then within the spread.
func (w *ways) spread(window time.Duration) time.Duration {
	n, least, longest := w.bounds()
	if n < fewestWays {
		return min(window/10, unknownMost)
	}
	d := longest - least
	d = max(d+8*d/time.Duration(n), min(window/50, spreadLeast))
	most := min(window/4, spreadMost)
	step := max(most/spreadSteps, time.Microsecond).Truncate(time.Microsecond)
	return min((d+step-1)/step*step, most.Truncate(time.Microsecond))
}

// longest returns the longest of the recent durations, rounded up to a power of two milliseconds, so that few
// different windows reach the store. It is zero if no duration is known or the longest is below a millisecond.
func (w *ways) longest() time.Duration {
	_, _, longest := w.bounds()
	d := time.Millisecond
	if longest < d {
		return 0
	}
	for d < longest {
		d *= 2
	}
	return d
}
