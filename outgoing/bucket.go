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
	looked time.Time         // when this process last looked for levels of others
	levels map[window]levels // of its limits
	sent   int64             // units that this process has charged
	ways   ways              // of its requests
	full   time.Time         // until when those that wait are paced because a window is full
	length time.Duration     // of its shortest window; zero if it has none
	until  time.Time         // when all of this is forgotten
}

// keep remembers the bucket until a time at least.
func (b *bucket) keep(until time.Time) {
	if until.After(b.until) {
		b.until = until
	}
}

// A sweep removes buckets that are forgotten. It runs at bucketsSweep keys and then at twice the number that the last one left. At
// bucketsMost keys it removes half, so the number is bounded whatever keys a route returns.
const (
	bucketsSweep = 1024
	bucketsMost  = 1 << 16
	bucketKept   = time.Hour // after its last use; longer than a request takes
)

// buckets has the buckets of a Transport by key. What is removed early is in the store, or is learnt again.
type buckets struct {
	mu    sync.Mutex
	all   map[string]*bucket // guarded by mu, and the buckets too
	sweep int                // the size of the next sweep, guarded by mu
}

func newBuckets() *buckets { return &buckets{all: map[string]*bucket{}, sweep: bucketsSweep} }

// lock returns a bucket, and locks mu: the caller unlocks it.
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
		for other := range c.all {
			if len(c.all) <= bucketsMost/2 {
				break
			}
			delete(c.all, other)
		}
		c.sweep = max(bucketsSweep, 2*len(c.all))
	}
	c.all[key] = b
	return b
}

// ways are the times of a bucket's last requests, from the charge to the first byte of the response. Those on new connections are longer
// and rarer, so they have a list of their own, the second, where others do not push them out.
type ways [2][]time.Duration

const (
	waysKept    = 100                    // in each list
	fewestWays  = 4                      // with fewer the spread is unknown: a tenth of the window,
	unknownMost = time.Second            // and no more than this
	spreadLeast = 100 * time.Millisecond // or a fiftieth of the window if that is less: any process is late now and then
	spreadMost  = 2 * time.Second        // or a quarter of the window. A new connection whose first packet is lost takes a second more
	spreadSteps = 25                     // of the largest spread, so that few different windows reach the store
)

// took records what a request took, and whether it had a new connection.
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

// spread returns by how much a window of the bucket has to be longer in the store: δ in docs/algorithms.md, the difference of the ways to
// the API. The times include the API and the way back, so they differ by at least as much once a request has taken little of each. The
// fewer there are, the more the next may exceed them, so the spread is longer by 8/n. The next of n equally distributed ways are then
// within it.
func (w *ways) spread(window time.Duration) time.Duration {
	all := slices.Concat(w[0], w[1])
	if len(all) < fewestWays {
		return min(window/10, unknownMost)
	}
	d := slices.Max(all) - slices.Min(all)
	d = max(d+8*d/time.Duration(len(all)), min(window/50, spreadLeast))
	most := min(window/4, spreadMost)
	step := max(most/spreadSteps, time.Microsecond).Truncate(time.Microsecond)
	return min((d+step-1)/step*step, most.Truncate(time.Microsecond))
}

// longest returns the longest way of the last requests, as a power of two of milliseconds, so that few different windows reach the store.
// It is zero if that is less than a millisecond, or unknown.
func (w *ways) longest() time.Duration {
	longest, d := slices.Max(append(slices.Concat(w[0], w[1]), 0)), time.Millisecond
	if longest < d {
		return 0
	}
	for d < longest {
		d *= 2
	}
	return d
}
