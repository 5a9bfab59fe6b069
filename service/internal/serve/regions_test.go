package serve

import (
	"encoding/json"
	"log/slog"
	"net/http"
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
- {key: own, limits: ["1000/10m"], scope: global, lease: 2s, on_unavailable: local, regions: 2, own_share: 10%}
- {key: small, limits: ["5/10m"], scope: global}
- {key: day, limits: ["5/day@UTC"], scope: global}
- {key: here, limits: ["5/10m"]}
`

// inRegion starts a service in a region of a home, with rules.
func inRegion(t *testing.T, home string, redis *redistest.Server, path string) Listening {
	t.Helper()
	return running(t, Options{
		Variables: at(path), Redis: redis.Addr(), Home: home, Budget: time.Second, HomeBudget: time.Second, Admin: "127.0.0.1:0",
	})
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
	path, body := "/v1/allow", `{"domain":"d","entries":[{"key":"`+keys[0]+`","value":"v"}]}`
	if len(keys) > 1 {
		path, body = "/json", `{"domain":"d","descriptors":[{"entries":[{"key":"`+strings.Join(keys, `","value":"v"}]},{"entries":[{"key":"`)+`","value":"v"}]}]}`
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

// burst calls so often, and returns how many calls were admitted, how many of them by the own share, and the last answer.
func burst(t *testing.T, at Listening, calls int, keys ...string) (admitted, own int, last decision) {
	t.Helper()
	for range calls {
		if last = call(t, at, keys...); last.status == http.StatusOK {
			admitted++
			if last.Source == "own" {
				own++
			}
		}
	}
	return admitted, own, last
}

// spendAll calls in regions at once until together they were admitted that often, and then a little longer. It returns
// how often in all, and how often from leases.
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

// One limit over two regions: each of them can use all of it alone, and both together get no more. What is too small to
// split, and what cannot be leased, is decided by the home, exactly. A rule without a scope is each region's own. A request
// over both is admitted by both or charged to neither. A home may be a Redis Cluster, or speak TLS.
func TestAGlobalRuleIsOneLimitOverRegions(t *testing.T) {
	secure, _ := redistest.StartTLS(t)
	certificate := secure.Must(t, "CONFIG", "GET", "tls-cert-file").([]any)[1].(string)
	_, cluster := servertest.StartCluster(t)
	for name, home := range map[string]string{"a cluster": cluster, "behind TLS": "rediss://" + secure.Addr() + "?tls_ca=" + certificate} {
		t.Run(name, func(t *testing.T) {
			path := file(t, regionRules)
			here, there := inRegion(t, home, redistest.Start(t), path), inRegion(t, home, redistest.Start(t), path)
			servertest.Wait(t, "the home is down", func() bool { return health(t, here).Home == "up" && health(t, there).Home == "up" })
			if n, _, last := burst(t, here, 20, "all", "here"); n != 5 || last.status != http.StatusTooManyRequests {
				t.Errorf("%d of 20 are admitted by both rules, of which one has 5", n)
			}
			for key, regions := range map[string][]Listening{"all": {here}, "open": {here, there}} {
				want := quota
				if key == "all" {
					want -= 5
				}
				admitted, leased := spendAll(t, want, key, regions...)
				t.Logf("%d admitted, %d of them from leases", admitted, leased)
				if admitted != want || leased < quota/2 {
					t.Errorf("%d admitted of %d, %d of them from leases", admitted, want, leased)
				}
				if d := call(t, there, key); d.status != http.StatusTooManyRequests {
					t.Errorf("the other region answers %+v when all is used", d)
				}
			}
			for key, want := range map[string]int{"small": 5, "day": 5, "here": 5} { // of which this region has used its own
				first, _, _ := burst(t, here, 3, key)
				second, _, last := burst(t, there, 6, key)
				if first+second != want || last.status != http.StatusTooManyRequests {
					t.Errorf("%s: %d and %d of %d", key, first, second, want)
				}
			}
		})
	}
}

// While the home is stopped a region spends what it holds, then its own share if it has one, and then the failure mode
// answers. The sum stays at the limit, also when the home is back.
func TestTheHomeIsAway(t *testing.T) {
	home, path := redistest.Start(t), file(t, regionRules)
	regions := []Listening{inRegion(t, home.Addr(), redistest.Start(t), path), inRegion(t, home.Addr(), redistest.Start(t), path)}
	sum := map[string]int{}
	for _, at := range regions {
		for _, key := range []string{"own", "all"} {
			admitted, own, _ := burst(t, at, 200, key)
			if sum[key] += admitted; admitted != 200 || own > 0 {
				t.Errorf("%s: %d of 200 are admitted, %d by the own share", key, admitted, own)
			}
		}
	}
	home.Pause()
	for _, at := range regions {
		admitted, own, last := burst(t, at, 400, "own")
		if sum["own"] += admitted; own != quota/10 || last.status != http.StatusTooManyRequests {
			t.Errorf("while the home is stopped %d are admitted, %d by the own share, and the last answer is %+v", admitted, own, last)
		}
		admitted, _, last = burst(t, at, 1000, "all")
		if sum["all"] += admitted; last.status != http.StatusServiceUnavailable {
			t.Errorf("a rule that is closed: %+v", last)
		}
		if d := call(t, at, "open"); d.status != http.StatusOK || d.Source != "policy" {
			t.Errorf("a rule that is open: %+v", d)
		}
		if d := call(t, at, "here"); d.status != http.StatusOK || d.Source != "store" {
			t.Errorf("a rule of the region: %+v", d)
		}
		servertest.Wait(t, "the home is away, and health is ok", func() bool { return health(t, at).Home == "down" })
		if h := health(t, at); h.Status != "degraded" || h.Store != "up" || h.Cause == "" {
			t.Errorf("%+v", h)
		}
	}
	home.Resume()
	for _, at := range regions {
		servertest.Wait(t, "it does not recover", func() bool { return health(t, at).Status == "ok" })
		for _, key := range []string{"own", "all"} {
			admitted, own, last := burst(t, at, 1000, key)
			if sum[key] += admitted; own > 0 || last.status != http.StatusTooManyRequests {
				t.Errorf("%s: once it is back %d are admitted, %d by the own share, and the last answer is %+v", key, admitted, own, last)
			}
		}
	}
	if t.Logf("%v of %d", sum, quota); sum["own"] > quota || sum["all"] > quota {
		t.Errorf("%v admitted of %d", sum, quota)
	}
}

// A rule without the right home is an error at the start.
func TestAGlobalRuleNeedsItsHome(t *testing.T) {
	redis := redistest.Start(t).Addr()
	path := file(t, "domain: d\ndescriptors:\n- {key: k, limits: [\"1000/10m\"], scope: global}\n")
	for want, opts := range map[string]Options{
		"rules.yaml:3: d / k: scope: global needs the home": {},
		"give --redis too": {Home: redis},
	} {
		opts.Config, opts.Log = config.Source{Path: path}, slog.New(slog.DiscardHandler)
		if err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
