package replay

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Retry is what clients do when they are refused.
type Retry uint8

// What clients do. All but NoRetry give up after MostRetries.
const (
	// NoRetry gives up at once.
	NoRetry Retry = iota
	// NaiveRetry tries again after RetryPause, every time.
	NaiveRetry
	// HonourRetryAfter tries again after what the answer's Retry-After says, which is whole seconds.
	HonourRetryAfter
	// FullJitter tries again after a time between nothing and RetryPause, doubled for each refusal and at
	// most LongestRetryPause. The times are by chance, and the same in every run.
	FullJitter
)

// How clients retry.
const (
	MostRetries       = 5
	RetryPause        = time.Second
	LongestRetryPause = time.Minute
)

var retryNames = []string{"none", "naive", "retry-after", "full-jitter"}

// String returns the name, such as "full-jitter".
func (r Retry) String() string {
	if int(r) < len(retryNames) {
		return retryNames[r]
	}
	return fmt.Sprintf("Retry(%d)", uint8(r))
}

// ParseRetry reads a name.
func ParseRetry(name string) (Retry, error) {
	if i := slices.Index(retryNames, name); i >= 0 {
		return Retry(i), nil
	}
	return NoRetry, fmt.Errorf("unknown retries %q: there are %s", name, strings.Join(retryNames, ", "))
}

// An attempt is an event, or what its client does after it was refused.
type attempt struct {
	event
	first   int64 // when it was tried first
	retries int
	number  uint64 // order among those of the same time
}

// A line of attempts that are due, the first first.
type waiting struct {
	due    attempts
	random *rand.Rand
	number uint64
}

func newWaiting() *waiting { return &waiting{random: rand.New(rand.NewPCG(1, 2))} }

// again queues what a refused client does next. It is false when the client gives up.
func (w *waiting) again(how Retry, a attempt, retryAfter time.Duration) bool {
	if how == NoRetry || a.retries == MostRetries {
		return false
	}
	pause := RetryPause
	switch how {
	case HonourRetryAfter:
		pause = (retryAfter + time.Second - 1).Truncate(time.Second)
	case FullJitter:
		pause = time.Duration(w.random.Int64N(int64(min(LongestRetryPause, RetryPause<<a.retries)))).Truncate(time.Microsecond)
	}
	a.at += pause.Microseconds()
	a.retries++
	w.number++
	a.number = w.number
	heap.Push(&w.due, a)
	return true
}

// before returns the first attempt that is due before the given time.
func (w *waiting) before(at int64) (attempt, bool) {
	if len(w.due) == 0 || w.due[0].at >= at {
		return attempt{}, false
	}
	return heap.Pop(&w.due).(attempt), true
}

type attempts []attempt

func (a attempts) Len() int { return len(a) }
func (a attempts) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].number < a[j].number
}
func (a attempts) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *attempts) Push(x any) { *a = append(*a, x.(attempt)) }

// Pop implements heap.Interface.
func (a *attempts) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}
