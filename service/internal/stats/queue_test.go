package stats

import (
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// TestQueueIsWhatHasNotStarted states that a rule's queue holds the bookings whose start lies ahead, and the time until
// the last of them starts.
func TestQueueIsWhatHasNotStarted(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	q := new(queue)
	if got := q.now(now); got != (Queue{}) || q.used() {
		t.Errorf("an empty queue: %+v, used %v", got, q.used())
	}
	for _, seconds := range []int{3, 1, 2} {
		q.add(now, time.Duration(seconds)*time.Second)
	}
	for seconds, want := range []Queue{{3, 3}, {2, 2}, {1, 1}, {}} {
		if got := q.now(now.Add(time.Duration(seconds) * time.Second)); got != want {
			t.Errorf("after %d s: %+v, want %+v", seconds, got, want)
		}
	}
	if !q.used() {
		t.Error("a queue that was used is not")
	}
	for range mostWaiting + 10 {
		q.add(now, time.Hour)
	}
	q.add(now, 2*time.Hour)
	if got, want := q.now(now), (Queue{mostWaiting, 7200}); got != want {
		t.Errorf("%+v, want %+v: the last counts however many wait", got, want)
	}
}

// TestBookingsAreInMetrics states that a booked request is in its rule's series and metrics.
func TestBookingsAreInMetrics(t *testing.T) {
	r := New(nil)
	rule := &config.Rule{Domain: "d", Label: "job"}
	for _, delay := range []time.Duration{0, time.Hour, 2 * time.Hour} {
		r.Observe(t.Context(), &decide.Observation{
			Domain: "d", Allowed: true, Parts: make([]decide.Part, 1),
			Answers: []decide.Answer{{Rule: rule, Metric: "d.job", Cost: 1, Delay: delay}},
		})
	}
	var series Series
	for _, s := range r.Snapshot().Rules {
		if s.Rule == "d.job" {
			series = s
		}
	}
	if q := series.Queue; q.Waiting != 2 || q.Longest < 7190 || q.Longest > 7200 {
		t.Errorf("the queue is %+v, want 2 bookings over two hours", q)
	}
	var text strings.Builder
	families, err := r.Prometheus.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if name := f.GetName(); name == "sash_waiting" || name == "sash_longest_wait_seconds" {
			text.WriteString(f.String())
		}
	}
	for _, want := range []string{`name:"sash_waiting"`, "value:2", `name:"sash_longest_wait_seconds"`, "value:7"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in %s", want, text.String())
		}
	}
}
