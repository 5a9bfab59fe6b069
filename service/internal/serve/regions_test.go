package serve

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
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

func rulesIn(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// inRegion starts a service in a region.
func inRegion(t *testing.T, home, redis *redistest.Server, path string) Listening {
	t.Helper()
	return inRegionOf(t, home.Addr(), redis, path)
}

// inRegionOf starts a service in a region of a home.
func inRegionOf(t *testing.T, home string, redis *redistest.Server, path string) Listening {
	t.Helper()
	at, stop := start(t, Options{
		Config: config.Source{Path: path}, Redis: redis.Addr(), Homes: config.Homes{"": home}, Budget: time.Second, HomeBudget: time.Second, Admin: "127.0.0.1:0",
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return at
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

// One limit over two regions: each of them can use all of it alone, and both together get no more.
func TestAGlobalRuleIsOneLimitOverRegions(t *testing.T) {
	home, path := redistest.Start(t), rulesIn(t, regionRules)
	here, there := inRegion(t, home, redistest.Start(t), path), inRegion(t, home, redistest.Start(t), path)
	for name, c := range map[string]struct {
		key     string
		regions []Listening
	}{
		"one region alone": {"all", []Listening{here}},
		"both":             {"open", []Listening{here, there}},
	} {
		t.Run(name, func(t *testing.T) {
			admitted, leased := spendAll(t, quota, c.key, c.regions...)
			t.Logf("%d admitted, %d of them from leases", admitted, leased)
			if admitted != quota || leased < quota/2 {
				t.Errorf("%d admitted of %d, %d of them from leases", admitted, quota, leased)
			}
			if d := call(t, there, c.key); d.status != http.StatusTooManyRequests {
				t.Errorf("the other region answers %+v when all is used", d)
			}
		})
	}
}

// What is too small to split, and what cannot be leased, is decided by the home, exactly. A rule without a scope is each
// region's own.
func TestPlacesOfRules(t *testing.T) {
	home, path := redistest.Start(t), rulesIn(t, regionRules)
	here, there := inRegion(t, home, redistest.Start(t), path), inRegion(t, home, redistest.Start(t), path)
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
	home, path := redistest.Start(t), rulesIn(t, regionRules)
	here := inRegion(t, home, redistest.Start(t), path)
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
	home, path := redistest.Start(t), rulesIn(t, regionRules)
	here := inRegion(t, home, redistest.Start(t), path)
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
	here := inRegion(t, home, redistest.Start(t), rulesIn(t, regionRules))
	servertest.Wait(t, "health is ok", func() bool { h := health(t, here); return h.Home == "down" && h.Cause == "readonly" })
	for range 3 {
		if d := call(t, here, "all"); d.status != http.StatusServiceUnavailable || d.Cause != "readonly" {
			t.Errorf("%+v", d)
		}
	}
	if text := get(t, here, "/metrics"); !strings.Contains(text, "sash_home_up 0") {
		t.Error("sash_home_up is not 0")
	}
}

// Without the region's Redis the home decides each call: slower, and within the limit.
func TestTheRedisOfTheRegionIsAway(t *testing.T) {
	for name, away := range map[string]func(*redistest.Server) (back func()){
		"stopped": func(s *redistest.Server) func() { s.Stop(); return s.Restart },
		"hangs":   func(s *redistest.Server) func() { s.Pause(); return s.Resume },
	} {
		t.Run(name, func(t *testing.T) {
			home, redis, path := redistest.Start(t), redistest.Start(t), rulesIn(t, regionRules)
			here := inRegion(t, home, redis, path)
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

func TestAGlobalRuleNeedsAHome(t *testing.T) {
	path := rulesIn(t, regionRules)
	for name, opts := range map[string]Options{"on Redis": {Redis: redistest.Start(t).Addr()}, "in memory": {}} {
		opts.Config.Path, opts.Log = path, slog.New(slog.DiscardHandler)
		err := Run(t.Context(), opts)
		if err == nil || !strings.Contains(err.Error(), "rules.yaml:4: d / all: scope: global needs the home") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Run(t.Context(), Options{Homes: config.Homes{"": "127.0.0.1:1"}}); err == nil || !strings.Contains(err.Error(), "give --redis too") {
		t.Errorf("a home without a region: %v", err)
	}
}

// A rule that moves from one region to all of them starts anew at the home. No window holds more than both limits.
func TestAReloadMovesARule(t *testing.T) {
	home, path := redistest.Start(t), rulesIn(t, "domain: d\ndescriptors:\n- {key: k, limits: [\"100/10m\"]}\n")
	here := inRegion(t, home, redistest.Start(t), path)
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

func get(t *testing.T, at Listening, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.Admin.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := caller.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var text strings.Builder
	if err := res.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
