package serve

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

// sharing starts a service in a region with an own share.
func sharing(t *testing.T, home, redis *redistest.Server, region string, percent int) Listening {
	t.Helper()
	at, stop := start(t, Options{
		Config: config.Source{Path: rulesIn(t, "domain: d\ndescriptors:\n- {key: own, limits: [\"1000/10m\"], scope: global, lease: 2s, on_unavailable: local}\n")},
		Redis:  redis.Addr(), Homes: config.Homes{"": home.Addr()}, Budget: time.Second, HomeBudget: time.Second, Admin: "127.0.0.1:0",
		Region: region, Regions: 2, OwnShare: percent,
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
	regions := []Listening{sharing(t, home, redistest.Start(t), "a", percent), sharing(t, home, redistest.Start(t), "b", percent)}
	sum := 0
	for _, at := range regions {
		servertest.Wait(t, "the regions do not agree", func() bool { return health(t, at).Own == "ok" })
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
		if h := health(t, at); h.Own != "ok" {
			t.Errorf("%+v", h)
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

// A region whose settings differ, or whose name another one has, says so and has no own share.
func TestRegionsThatDisagree(t *testing.T) {
	home := redistest.Start(t)
	right := sharing(t, home, redistest.Start(t), "a", 10)
	servertest.Wait(t, "the region has no own share", func() bool { return health(t, right).Own == "ok" })
	for why, wrong := range map[string]Listening{
		"other regions have agreed on": sharing(t, home, redistest.Start(t), "b", 20),
		"another store has the name":   sharing(t, home, redistest.Start(t), "a", 10),
	} {
		servertest.Wait(t, why, func() bool { return strings.Contains(health(t, wrong).Own, why) })
		if admitted, own, _ := burst(t, wrong, 5); admitted != 5 || own > 0 {
			t.Errorf("%s: %d of 5 are admitted, %d by the own share", why, admitted, own)
		}
	}
	// The leases of the others end, and what is left of them comes back.
	sum, byOwn := 0, 0
	servertest.Wait(t, "units are missing", func() bool {
		admitted, own, _ := burst(t, right, 100)
		sum, byOwn = sum+admitted, byOwn+own
		return sum >= 1000-10-100
	})
	admitted, own, last := burst(t, right, 100)
	if sum+admitted != 1000-10-100 || byOwn+own != 100 || last != http.StatusTooManyRequests {
		t.Errorf("%d and %d are admitted, %d and %d by the own share, and the last answer is %d", sum, admitted, byOwn, own, last)
	}
}

// Without its name a region has no rule with an own share.
func TestAnOwnShareNeedsTheNameOfTheRegion(t *testing.T) {
	path := rulesIn(t, "domain: d\ndescriptors:\n- {key: own, limits: [\"1000/10m\"], scope: global, on_unavailable: local}\n")
	err := Run(t.Context(), Options{Config: config.Source{Path: path}, Redis: redistest.Start(t).Addr(), Homes: config.Homes{"": redistest.Start(t).Addr()}})
	if err == nil || !strings.Contains(err.Error(), "give --region with its name") {
		t.Error(err)
	}
}
