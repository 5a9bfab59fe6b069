package driver_test

import (
	"testing"
	"time"

	"example.com/sash/driver"
)

func TestBeforeAndAfterLeaveTheAnswerUnchanged(t *testing.T) {
	minute := time.Minute.Microseconds()
	for _, n := range []int{1, 2, 3, driver.MaxLimits} {
		statuses := make([]driver.Status, n)
		for i := range statuses {
			statuses[i] = driver.Status{Remaining: 6, Release: minute, Reset: minute}
		}
		answer := driver.NewAnswer(5, 0, statuses)
		statuses[n-1] = driver.Status{} // the answer has a copy
		before, after := answer.Before(3), answer.After(59*time.Second)
		for i := range n {
			if s := answer.Statuses()[i]; s.Remaining != 6 || s.Reset != minute || answer.At != 5 {
				t.Errorf("%d limits: the original is now %+v at %d", n, s, answer.At)
			}
			if s := before.Statuses()[i]; s.Remaining != 9 || s.Reset != minute {
				t.Errorf("%d limits: before 3 units were charged: %+v", n, s)
			}
			if s := after.Statuses()[i]; s.Remaining != 6 || s.Reset != 1e6 || s.Release != 1e6 {
				t.Errorf("%d limits: 59 seconds later: %+v", n, s)
			}
			gone := answer.After(48 * time.Hour)
			if s := gone.Statuses()[i]; s.Reset != 0 || s.Release != 0 {
				t.Errorf("%d limits: two days later: %+v", n, s)
			}
		}
		if len(answer.Statuses()) != n || after.At != 5+59e6 {
			t.Errorf("%d statuses, want %d; the clock 59 seconds after 5 is %d", len(answer.Statuses()), n, after.At)
		}
	}
}

func TestAnAnswerCombinesItsLimits(t *testing.T) {
	for name, c := range map[string]struct {
		refusals         uint64
		allowed          bool
		remaining, retry int64
	}{
		"admitted":           {0, true, 2, 0},
		"refused by one":     {0b010, false, 2, 70},
		"refused by several": {0b110, false, 2, 70},
	} {
		answer := driver.NewAnswer(1, c.refusals, []driver.Status{{Remaining: 9}, {Remaining: 2, Retry: 70}, {Remaining: 4, Retry: 30}})
		if answer.Allowed() != c.allowed || answer.Remaining() != c.remaining || answer.Retry() != c.retry {
			t.Errorf("%s: allowed %v, %d left, retry after %d", name, answer.Allowed(), answer.Remaining(), answer.Retry())
		}
	}
}

// What is left counts again when a block ends, and what is used as it leaves.
func TestTheNextUnitOfABlockedSubject(t *testing.T) {
	for name, c := range map[string]struct {
		remaining, left, want int64
	}{
		"units are left":       {2, 10, 10},
		"none is left":         {0, 10, 60},
		"one leaves meanwhile": {0, 90, 90},
	} {
		answer := driver.NewAnswer(1, 0, []driver.Status{{Remaining: c.remaining, Release: 60, Reset: 60}})
		answer.Bar(c.left)
		if s := answer.Statuses()[0]; s.Remaining != 0 || s.Release != c.want || s.Retry != c.left || s.Reset != max(60, c.left) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
