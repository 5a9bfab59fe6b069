package outside

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		clock := time.UnixMicro(1_700_000_000_000_000)
		now := func() time.Time { return clock }
		return storetest.Harness{Store: New(now), Now: now, Advance: func(d time.Duration) { clock = clock.Add(d) }}
	}, sash.SlidingLog)
}
