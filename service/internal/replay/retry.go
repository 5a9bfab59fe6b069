package replay

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Retry is how clients react to a refusal.
type Retry uint8

// Reactions to a refusal. All but NoRetry give up after MostRetries.
const (
	// NoRetry gives up at once.
	NoRetry Retry = iota
	// NaiveRetry always tries again after RetryPause.
	NaiveRetry
	// HonourRetryAfter tries again after the response's Retry-After, in whole seconds.
	HonourRetryAfter
	// FullJitter tries again after a random time between 0 and RetryPause, doubled for each refusal up to
	// LongestRetryPause, in milliseconds. The times are the same in every run.
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

// ParseRetry parses a name.
func ParseRetry(name string) (Retry, error) {
	if i := slices.Index(retryNames, name); i >= 0 {
		return Retry(i), nil
	}
	return NoRetry, fmt.Errorf("unknown retries %q: use one of %s", name, strings.Join(retryNames, ", "))
}

// An attempt is an event, or a retry of one.
type attempt struct {
	event
	first   int64 // the time of the first attempt
	retries int
	number  uint64 // orders attempts of the same time
}

// A line is a heap of attempts by due time.
type waiting struct {
	due    attempts
	random *rand.Rand
	number uint64
}

func newWaiting() *waiting { return &waiting{random: rand.New(rand.NewPCG(1, 2))} }

// again queues the next attempt of a refused client. It reports false if the client gives up.
func (w *waiting) again(how Retry, a attempt, retryAfter time.Duration) bool {
	if how == NoRetry || a.retries == MostRetries {
		return false
	}
	pause := RetryPause
	switch how {
	case HonourRetryAfter:
		pause = (retryAfter + time.Second - 1).Truncate(time.Second)
	case FullJitter:
		pause = time.Duration(w.random.Int64N(int64(min(LongestRetryPause, RetryPause<<a.retries)))).Truncate(time.Millisecond)
	}
	a.at += pause.Microseconds()
	a.retries++
	w.number++
	a.number = w.number
	heap.Push(&w.due, a)
	return true
}

// before returns the earliest attempt that is due before the given time.
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
