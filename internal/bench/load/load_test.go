package load_test

import (
	"context"
	"errors"
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
