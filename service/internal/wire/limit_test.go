package wire

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// A home that decides beside own shares has 800 of 1,000 units, so 800 remain of a subject without a charge.
func TestWhatIsUsedBesideOwnSharesIsNotKnown(t *testing.T) {
	for _, regions := range []int{0, 2} {
		used := UsageOf(&decide.Answer{
			Rule:   &config.Rule{Place: config.Place{Global: true, Own: config.OwnShare{Regions: regions}}},
			Limits: []sash.LimitResult{{Limit: sash.Every(1000, time.Minute), Remaining: 800}},
		})[0].Used
		if (used == nil) != (regions > 0) || used != nil && *used != 200 {
			t.Errorf("with own shares of %d regions: %v", regions, used)
		}
	}
}
