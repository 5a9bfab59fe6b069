package load_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/internal/bench/load"
)

func TestRunMeasuresTheCallsAfterWarmingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		out, err := load.Run{
			Decide: func(context.Context, string) (bool, error) {
				time.Sleep(10 * time.Millisecond)
				if calls.Add(1)%10 == 0 {
					return false, errors.New("lost")
				}
				return true, nil
			},
			Keys: load.Keys(10, 0, 1), Goroutines: 1, Duration: 10*time.Second + time.Millisecond,
			Meters: []load.Meter{func() (float64, error) { return 9 * float64(calls.Load()), nil }},
		}.Do()
		if err != nil || out.Err == nil {
			t.Fatalf("error %v, failure %v", err, out.Err)
		}
		if all := out.Decisions + out.Failed; all < 999 || all > 1001 || out.Failed != 100 {
			t.Errorf("%d decisions and %d failures", out.Decisions, out.Failed)
		}
		for name, c := range map[string]struct{ got, want float64 }{
			"decisions a second": {out.PerSecond, 90}, "p50": {out.P50, 10_000}, "p99": {out.P99, 10_000}, "meter": {out.Used[0], 10},
		} {
			if c.got < 0.98*c.want || c.got > 1.02*c.want {
				t.Errorf("%s is %v, want about %v", name, c.got, c.want)
			}
		}
	})
}

func TestRunCallsAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, err := load.Run{
			Decide: func(context.Context, string) (bool, error) { return true, nil },
			Keys:   load.Keys(10, 0, 1), Goroutines: 4, Rate: 1000, Duration: 20 * time.Second,
		}.Do()
		if err != nil || out.PerSecond < 950 || out.PerSecond > 1050 { // within 7 in two of three runs
			t.Errorf("%v calls a second, error %v; want about 1000", out.PerSecond, err)
		}
	})
}

func TestAlternateTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []int
		figures, err := load.Alternate(3, func(round int) (runs []load.Run) {
			for i := range 3 {
				runs = append(runs, load.Run{
					Decide: func(context.Context, string) (bool, error) {
						if len(order) == 0 || order[len(order)-1] != i {
							order = append(order, i)
						}
						time.Sleep(time.Duration(i+1) * time.Millisecond)
						return true, nil
					},
					Keys: load.Keys(10, 0, uint64(round)), Goroutines: 1, Duration: time.Second,
				})
			}
			return runs
		})
		if err != nil || !slices.Equal(order, []int{0, 1, 2, 1, 2, 0, 2, 0, 1}) {
			t.Errorf("order %v, error %v", order, err)
		}
		for i, f := range figures {
			if want := 1000 / float64(i+1); len(f.PerSecond) != 3 || f.PerSecond.Median() < 0.98*want || f.PerSecond.Median() > 1.02*want {
				t.Errorf("run %d has %v decisions a second in its rounds, want three of about %v", i, f.PerSecond, want)
			}
		}
	})
}

func TestAlternateReportsAFailedDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		_, err := load.Alternate(1, func(int) []load.Run {
			return []load.Run{{
				Decide: func(context.Context, string) (bool, error) { time.Sleep(time.Millisecond); return false, lost },
				Keys:   load.Keys(10, 0, 1), Goroutines: 1, Duration: time.Second,
			}}
		})
		if !errors.Is(err, lost) {
			t.Errorf("error %v, want %v", err, lost)
		}
	})
}
