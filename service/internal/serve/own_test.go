package serve

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

// sharing starts a service in a region with an own share.
func sharing(t *testing.T, home, redis *redistest.Server, percent int) Listening {
	t.Helper()
	at, stop := start(t, Options{
		Config: config.Source{Path: rulesIn(t, fmt.Sprintf("domain: d\ndescriptors:\n- {key: own, limits: [\"1000/10m\"], scope: global, lease: 2s, on_unavailable: local, regions: 2, own_share: %d%%}\n", percent))},
		Redis:  redis.Addr(), Homes: config.Homes{"": home.Addr()}, Budget: time.Second, HomeBudget: time.Second, Admin: "127.0.0.1:0",
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return at
}

// burst calls so often, and returns how many calls were admitted, how many of them by the own share, and the last status.
func burst(t *testing.T, at Listening, calls int) (admitted, own, last int) {
	t.Helper()
	for range calls {
		d := call(t, at, "own")
		if last = d.status; last == http.StatusOK {
			admitted++
			if d.Source == "own" {
				own++
			}
		}
	}
	return admitted, own, last
}

// While the home is stopped each region goes on with its own share. The sum stays at the limit, also when the home is back.
func TestTheHomeIsStoppedAndRegionsHaveOwnShares(t *testing.T) {
	home, percent := redistest.Start(t), 10
	regions := []Listening{sharing(t, home, redistest.Start(t), percent), sharing(t, home, redistest.Start(t), percent)}
	sum := 0
	for _, at := range regions {
		admitted, own, _ := burst(t, at, 200)
		if sum += admitted; admitted != 200 || own > 0 {
			t.Errorf("%d of 200 are admitted, %d by the own share", admitted, own)
		}
	}
	home.Pause()
	for _, at := range regions {
		admitted, own, last := burst(t, at, 400)
		if sum += admitted; own != quota*percent/100 || last != http.StatusTooManyRequests {
			t.Errorf("while the home is stopped %d are admitted, %d by the own share, and the last answer is %d", admitted, own, last)
		}
	}
	home.Resume()
	for _, at := range regions {
		servertest.Wait(t, "the home does not decide", func() bool { return health(t, at).Home == "up" })
		admitted, own, last := burst(t, at, 800)
		if sum += admitted; own > 0 || last != http.StatusTooManyRequests {
			t.Errorf("once it is back %d are admitted, %d by the own share, and the last answer is %d", admitted, own, last)
		}
	}
	t.Logf("%d of %d", sum, quota)
	if sum > quota {
		t.Errorf("%d admitted of %d", sum, quota)
	}
}
