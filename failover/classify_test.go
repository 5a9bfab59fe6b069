package failover_test

import (
	"errors"
	"testing"

	"example.com/sash/failover"
)

func TestClassifyByAsksWhetherTheCallWasChargedFirst(t *testing.T) {
	for _, c := range []struct {
		uncharged, misconfigured bool
		want                     failover.Kind
	}{
		{false, false, failover.Unknown},
		{false, true, failover.Unknown},
		{true, false, failover.Unsent},
		{true, true, failover.Misconfigured},
	} {
		classify := failover.ClassifyBy(
			func(error) bool { return c.uncharged },
			func(error) bool { return c.misconfigured },
		)
		if kind := classify(errors.New("refused")); kind != c.want {
			t.Errorf("uncharged %v, misconfigured %v: kind %v, want %v", c.uncharged, c.misconfigured, kind, c.want)
		}
	}
}
