package serve

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

// quota is the units of the rules of regions; their window does not pass in a test.
const quota = 1000

const regionRules = `
domain: d
descriptors:
- {key: all, limits: ["1000/10m"], scope: global, lease: 2s}
- {key: open, limits: ["1000/10m"], scope: global, lease: 2s, on_unavailable: open}
- {key: small, limits: ["5/10m"], scope: global}
- {key: day, limits: ["5/day@UTC"], scope: global}
- {key: hot, limits: ["1000/10m"], lease: 2s}
- {key: here, limits: ["5/10m"]}
`

// inRegion starts a service in a region of a home, with rules.
func inRegion(t *testing.T, home string, redis *redistest.Server, path string) Listening {
	t.Helper()
	return running(t, Options{
		Config: config.Source{Path: path}, Redis: redis.Addr(), Home: home, Budget: time.Second, HomeBudget: time.Second, Admin: "127.0.0.1:0",
	})
}

// world starts a home and two regions with the rules, of which a test may use one.
func world(t *testing.T) (home *redistest.Server, here, there Listening) {
	t.Helper()
	home, path := redistest.Start(t), file(t, regionRules)
	return home, inRegion(t, home.Addr(), redistest.Start(t), path), inRegion(t, home.Addr(), redistest.Start(t), path)
}

type decision struct {
	status int
	Source string `json:"source"`
	Cause  string `json:"cause"`
}

var caller = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// call asks for a unit of each key, in one request.
func call(t *testing.T, at Listening, keys ...string) (d decision) {
	t.Helper()
	entries := make([]string, len(keys))
	for i, key := range keys {
		entries[i] = `[{"key":"` + key + `","value":"v"}]`
	}
	body := `{"domain":"d","entries":` + entries[0] + `}`
	if len(keys) > 1 {
		body = `{"domain":"d","descriptors":[{"entries":` + strings.Join(entries, `},{"entries":`) + `}]}`
	}
	path := "/v1/allow"
	if len(keys) > 1 {
		path = "/json"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at.HTTP.String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := caller.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	_ = json.NewDecoder(res.Body).Decode(&d)
	d.status = res.StatusCode
	return d
}

// spendAll calls in regions at once until together they were admitted that often, and then a little longer. It returns how often in all, and how often from leases.
func spendAll(t *testing.T, most int, key string, regions ...Listening) (admitted, leased int) {
	t.Helper()
	var mu sync.Mutex
	full := time.Now().Add(30 * time.Second)
	var group sync.WaitGroup
	for i := range 8 * len(regions) {
		group.Go(func() {
			for {
				d := call(t, regions[i%len(regions)], key)
				mu.Lock()
				if d.status == http.StatusOK {
					admitted++
				}
				if d.status == http.StatusOK && d.Source == "lease" {
					leased++
				}
				if now := time.Now(); admitted >= most && full.After(now.Add(100*time.Millisecond)) {
					full = now.Add(100 * time.Millisecond)
				}
				over := time.Now().After(full)
				mu.Unlock()
				if over {
					return
				}
			}
		})
	}
	group.Wait()
	return admitted, leased
}

// One limit over two regions: each of them can use all of it alone, and both together get no more. A home may be a Redis
// Cluster, or speak TLS.
func TestAGlobalRuleIsOneLimitOverRegions(t *testing.T) {
	secure, _ := redistest.StartTLS(t)
	certificate := secure.Must(t, "CONFIG", "GET", "tls-cert-file").([]any)[1].(string)
	_, cluster := servertest.StartCluster(t)
	for name, home := range map[string]string{
		"a server": redistest.Start(t).Addr(), "a cluster": cluster, "behind TLS": "rediss://" + secure.Addr() + "?tls_ca=" + certificate,
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, regionRules)
			here, there := inRegion(t, home, redistest.Start(t), path), inRegion(t, home, redistest.Start(t), path)
			servertest.Wait(t, "the home is down", func() bool { return health(t, here).Home == "up" && health(t, there).Home == "up" })
			for key, regions := range map[string][]Listening{"all": {here}, "open": {here, there}} {
				admitted, leased := spendAll(t, quota, key, regions...)
				t.Logf("%d admitted, %d of them from leases", admitted, leased)
				if admitted != quota || leased < quota/2 {
					t.Errorf("%d admitted of %d, %d of them from leases", admitted, quota, leased)
				}
				if d := call(t, there, key); d.status != http.StatusTooManyRequests {
					t.Errorf("the other region answers %+v when all is used", d)
				}
			}
		})
	}
}

// What is too small to split, and what cannot be leased, is decided by the home, exactly. A rule without a scope is each
// region's own.
func TestPlacesOfRules(t *testing.T) {
	_, here, there := world(t)
	for key, want := range map[string]int{"small": 5, "day": 5, "here": 10} {
		admitted := 0
		for range 10 {
			for _, at := range []Listening{here, there} {
				switch d := call(t, at, key); {
				case d.status == http.StatusOK && d.Source == "store":
					admitted++
				case d.status != http.StatusTooManyRequests:
					t.Errorf("%s: %+v", key, d)
				}
			}
		}
		if admitted != want {
			t.Errorf("%s: %d of %d", key, admitted, want)
		}
	}
}

// A request with a rule of all regions and one of this one is admitted by both or charged to neither.
func TestARequestOverPlacesIsAllOrNothing(t *testing.T) {
	_, here, _ := world(t)
	over := 0
	for range 50 {
		if d := call(t, here, "all", "here"); d.status == http.StatusTooManyRequests {
			over++
		} else if d.status != http.StatusOK {
			t.Fatalf("%+v", d)
		}
	}
	if over != 45 {
		t.Errorf("%d of 50 were refused by the rule with 5", over)
	}
	if admitted, _ := spendAll(t, quota-5, "all", here); admitted != quota-5 {
		t.Errorf("%d left of %d after 5 admitted requests", admitted, quota)
	}
}

func TestTheHomeIsAway(t *testing.T) {
	home, here, _ := world(t)
	admitted := 0
	for leased := 0; leased < 50; {
		if d := call(t, here, "all"); d.status == http.StatusOK {
			if admitted++; d.Source == "lease" {
				leased++
			}
		}
	}
	home.Pause()
	held, closed := 0, false
	for range 2000 {
		d := call(t, here, "all")
		if d.status == http.StatusOK && d.Source == "lease" {
			held++
		}
		if d.status == http.StatusServiceUnavailable {
			closed = true
			break
		}
	}
	if admitted += held; held == 0 || !closed {
		t.Errorf("%d units that it held were spent, and closed: %v", held, closed)
	}
	if d := call(t, here, "open"); d.status != http.StatusOK || d.Source != "policy" {
		t.Errorf("a rule that is open: %+v", d)
	}
	if d := call(t, here, "here"); d.status != http.StatusOK || d.Source != "store" {
		t.Errorf("a rule of the region: %+v", d)
	}
	servertest.Wait(t, "the home is away, and health is ok", func() bool { return health(t, here).Home == "down" })
	if h := health(t, here); h.Status != "degraded" || h.Store != "up" || h.Cause == "" {
		t.Errorf("%+v", h)
	}
	home.Resume()
	servertest.Wait(t, "it does not recover", func() bool { return health(t, here).Status == "ok" })
	servertest.Wait(t, "nothing is decided", func() bool { return call(t, here, "all").status == http.StatusOK })
	admitted++
	for range 3000 {
		if call(t, here, "all").status == http.StatusOK {
			admitted++
		}
	}
	t.Logf("%d of %d", admitted, quota)
	if admitted > quota {
		t.Errorf("%d admitted of %d", admitted, quota)
	}
}

// A home that answers and cannot write, such as a replica, is down, and calls say why.
func TestTheHomeIsAReplica(t *testing.T) {
	home := redistest.StartReplica(t, redistest.Start(t).Addr())
	here := inRegion(t, home.Addr(), redistest.Start(t), file(t, regionRules))
	servertest.Wait(t, "health is ok", func() bool { h := health(t, here); return h.Home == "down" && h.Cause == "readonly" })
	for range 3 {
		if d := call(t, here, "all"); d.status != http.StatusServiceUnavailable || d.Cause != "readonly" {
			t.Errorf("%+v", d)
		}
	}
	has(t, get(t, here, "/metrics"), "sash_home_up 0\n")
}

// Without the region's Redis the home decides each call: slower, and within the limit.
func TestTheRedisOfTheRegionIsAway(t *testing.T) {
	for name, away := range map[string]func(*redistest.Server) (back func()){
		"stopped": func(s *redistest.Server) func() { s.Stop(); return s.Restart },
		"hangs":   func(s *redistest.Server) func() { s.Pause(); return s.Resume },
	} {
		t.Run(name, func(t *testing.T) {
			home, redis := redistest.Start(t), redistest.Start(t)
			here := inRegion(t, home.Addr(), redis, file(t, regionRules))
			admitted := 0
			count := func(d decision) bool {
				if d.status == http.StatusOK {
					admitted++
				}
				return d.status == http.StatusOK
			}
			for range 200 {
				count(call(t, here, "all"))
			}
			back := away(redis)
			servertest.Wait(t, "the home does not decide", func() bool { d := call(t, here, "all"); return count(d) && d.Source == "store" })
			for range 20 {
				if d := call(t, here, "all"); !count(d) {
					t.Errorf("%+v", d)
				}
			}
			if d := call(t, here, "here"); d.status != http.StatusServiceUnavailable {
				t.Errorf("a rule of the region: %+v", d)
			}
			back()
			servertest.Wait(t, "no units are leased", func() bool { d := call(t, here, "all"); return count(d) && d.Source == "lease" })
			for range 3000 {
				count(call(t, here, "all"))
			}
			t.Logf("%d of %d", admitted, quota)
			if admitted > quota {
				t.Errorf("%d admitted of %d", admitted, quota)
			}
		})
	}
}

func TestAGlobalRuleNeedsTheHome(t *testing.T) {
	redis := redistest.Start(t).Addr()
	for name, test := range map[string]struct {
		redis, home, want string
	}{
		"on Redis":                {redis, "", "rules.yaml:3: d / k: scope: global needs the home"},
		"in memory":               {"", "", "rules.yaml:3: d / k: scope: global needs the home"},
		"a home without a region": {"", redis, "give --redis too"},
	} {
		path := file(t, "domain: d\ndescriptors:\n- {key: k, limits: [\"1000/10m\"], scope: global}\n")
		err := Run(t.Context(), Options{
			Config: config.Source{Path: path}, Redis: test.redis, Home: test.home, Log: slog.New(slog.DiscardHandler),
		})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rule that moves from one region to all of them starts anew at the home. No window holds more than both limits.
func TestAReloadMovesARule(t *testing.T) {
	home, path := redistest.Start(t), file(t, "domain: d\ndescriptors:\n- {key: k, limits: [\"100/10m\"]}\n")
	here := inRegion(t, home.Addr(), redistest.Start(t), path)
	admitted := func() (n int) {
		for range 150 {
			if call(t, here, "k").status == http.StatusOK {
				n++
			}
		}
		return n
	}
	if n := admitted(); n != 100 {
		t.Fatalf("%d of 100", n)
	}
	write := func(keys string) {
		if err := os.WriteFile(path, []byte("domain: d\ndescriptors:\n- {key: k, limits: [\"100/10m\"], "+keys+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("scope: global, lease: 1s")
	first := 0
	servertest.Wait(t, "the rule does not move", func() bool {
		if call(t, here, "k").status == http.StatusOK {
			first++
		}
		return first > 0
	})
	if n := first + admitted(); n > 100 {
		t.Errorf("%d of 100 at the home", n)
	}
	write("scope: global, lease: 3s")
	servertest.Wait(t, "the lease does not change", func() bool {
		return strings.Contains(get(t, here, "/rlconfig"), "lease 3s")
	})
	if n := admitted(); n > 20 { // a lease of before may have come back
		t.Errorf("%d more after a change of the lease", n)
	}
}

// A home that comes back without its state admits the limit once more, and not twice.
func TestAHomeThatLosesItsState(t *testing.T) {
	home, here, there := world(t)
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
	path := file(t, fmt.Sprintf("domain: d\ndescriptors:\n- {key: own, limits: [\"1000/10m\"], scope: global, lease: 2s, on_unavailable: local, regions: 2, own_share: %d%%}\n", percent))
	regions := []Listening{inRegion(t, home.Addr(), redistest.Start(t), path), inRegion(t, home.Addr(), redistest.Start(t), path)}
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
