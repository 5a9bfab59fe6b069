package stats

import (
	"container/heap"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// mostWaiting is the most bookings of a rule that are counted at a time, 8 bytes each.
const mostWaiting = 10_000

// A queue is the bookings that this instance made under a rule and that have not started. One that is given back counts
// until it would have started.
type queue struct {
	mu     sync.Mutex
	starts instants // guarded by mu: a heap, the earliest first
	last   int64    // guarded by mu: the latest start
}

// A Queue is how many bookings have not started, and how long it takes until the last of them starts.
type Queue struct {
	Waiting int     `json:"waiting"`      // at most 10,000 are counted
	Longest float64 `json:"longest_wait"` // seconds
}

// add adds a booking that starts after a delay.
func (q *queue) add(now time.Time, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.start(now)
	starts := now.Add(delay).UnixNano()
	q.last = max(q.last, starts)
	if len(q.starts) < mostWaiting {
		heap.Push(&q.starts, starts)
	}
}

// start removes the bookings that have started.
func (q *queue) start(now time.Time) {
	for len(q.starts) > 0 && q.starts[0] <= now.UnixNano() {
		heap.Pop(&q.starts)
	}
}

// now returns the queue as it is.
func (q *queue) now(now time.Time) Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.start(now); len(q.starts) == 0 {
		return Queue{}
	}
	return Queue{len(q.starts), time.Duration(q.last - now.UnixNano()).Seconds()}
}

// used reports whether there ever was a booking.
func (q *queue) used() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last > 0
}

// instants is a heap of instants in nanoseconds since the Unix epoch.
type instants []int64

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i] < h[j] }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(int64)) }

func (h *instants) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

var (
	waitingDesc = prometheus.NewDesc("sash_waiting", "Bookings of this instance that have not started, at most 10,000.", []string{"domain", "rule"}, nil)
	longestDesc = prometheus.NewDesc("sash_longest_wait_seconds", "Time until the last of them starts.", []string{"domain", "rule"}, nil)
)

// collect collects the metrics of a rule under which bookings were made.
func (q *queue) collect(to chan<- prometheus.Metric, domain, rule string) {
	if q.used() {
		now := q.now(time.Now())
		to <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(now.Waiting), domain, rule)
		to <- prometheus.MustNewConstMetric(longestDesc, prometheus.GaugeValue, now.Longest, domain, rule)
	}
}
