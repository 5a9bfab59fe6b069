package outgoing

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A bucket is what this process knows of one bucket, or of an account, that cool-downs are for. The zero bucket knows nothing.
type bucket struct {
	cool   coolDown          // the last one
	looked time.Time         // when this process last looked for levels that others have learnt
	levels map[window]levels // what responses have revealed of its limits
	sent   int64             // units that this process has charged
	ways   ways              // of its requests
	full   time.Time         // until when those that wait are paced because a window is full
	length time.Duration     // of the shortest window of the last request; zero without one
	until  time.Time         // when all of this is over
}

// keep keeps what is known of the bucket until a time at least.
func (b *bucket) keep(until time.Time) {
	if until.After(b.until) {
		b.until = until
	}
}

// Bounds of buckets. They sweep at bucketsSweep keys or, later, at twice the number after the last sweep. At bucketsMost keys they forget
// half, so their size is bounded whatever keys a route returns.
const (
	bucketsSweep = 1024
	bucketsMost  = 1 << 16
	bucketKept   = time.Hour // after its last use; longer than a request takes
)

// buckets are those of a Transport, by key. What they forget early is in the store, or is learnt again.
type buckets struct {
	mu    sync.Mutex
	all   map[string]*bucket // guarded by mu, and so is what is in them
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

// ways are what the last requests to a bucket have taken, from the charge to the first byte of the response. Those with new connections,
// the second list, are longer and rarer: they are kept apart, so that many others do not push them out.
type ways [2][]time.Duration

const (
	fewestWays  = 4   // before as many requests the spread is unknown: a tenth of the window
	waysKept    = 100 // in each list
	unknownMost = time.Second
	spreadLeast = 100 * time.Millisecond // and no more than a fiftieth of the window: any process is late now and then
	spreadMost  = 2 * time.Second        // and no more than a quarter. A new connection whose first packet is lost takes one more
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

// spread returns by how much a window of the bucket has to be longer at the store: by how much the ways of its requests to the API differ,
// δ in docs/algorithms.md. What requests take includes the API and the way back, so it differs by as much, as soon as one has taken little
// of each. The fewer there were, the more the next may exceed them, so the spread is longer by 8/n: the next of n equally distributed
// ways are then within it.
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
