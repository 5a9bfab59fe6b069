package serve

import (
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// A home may be a Redis Cluster, or speak TLS.
func TestHomesOfOtherKinds(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (url string){
		"a cluster": func(t *testing.T) string { _, url := servertest.StartCluster(t); return url },
		"behind TLS": func(t *testing.T) string {
			server, _ := redistest.StartTLS(t)
			certificate := server.Must(t, "CONFIG", "GET", "tls-cert-file").([]any)[1].(string)
			return "rediss://" + server.Addr() + "?tls_ca=" + certificate
		},
	} {
		t.Run(name, func(t *testing.T) {
			home, path := start(t), rulesIn(t, regionRules)
			here, there := inRegionOf(t, home, redistest.Start(t), path), inRegionOf(t, home, redistest.Start(t), path)
			servertest.Wait(t, "the home is down", func() bool { return health(t, here).Home == "up" && health(t, there).Home == "up" })
			admitted, leased := spendAll(t, quota, "all", here, there)
			t.Logf("%d admitted, %d of them from leases", admitted, leased)
			if admitted != quota || leased < quota/2 {
				t.Errorf("%d admitted of %d, %d of them from leases", admitted, quota, leased)
			}
			for range 5 {
				if d := call(t, here, "small"); d.status != 200 || d.Source != "store" {
					t.Errorf("a small limit: %+v", d)
				}
			}
			if d := call(t, there, "small"); d.status != 429 {
				t.Errorf("a small limit that is used: %+v", d)
			}
		})
	}
}

// A home that comes back without its state admits the limit once more, and not twice.
func TestAHomeThatLosesItsState(t *testing.T) {
	home, path := redistest.Start(t), rulesIn(t, regionRules)
	here, there := inRegion(t, home, redistest.Start(t), path), inRegion(t, home, redistest.Start(t), path)
	first, _ := spendAll(t, quota, "all", here, there)
	home.Stop()
	home.Restart()
	servertest.Wait(t, "nothing is decided", func() bool { return call(t, here, "open").status == 200 && call(t, there, "open").status == 200 })
	second, _ := spendAll(t, quota, "all", here, there)
	t.Logf("%d admitted, and %d after the home lost its state", first, second)
	if first != quota || second == 0 || second > quota {
		t.Errorf("%d admitted, and %d after the home lost its state: want %d, and at most as many again", first, second, quota)
	}
}
