package faulttest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/lease"
)

var regionsFor = flag.Duration("regions", 0, "how long callers in three regions ask, beside each fault by itself: 60s. Zero is nine seconds with all faults")

// ways are the milliseconds of one direction between each region and the home.
var ways = []int{1, 40, 75}

// A region has a Redis of its own, a way to the home, and two processes of sash serve.
type region struct {
	redis    *redistest.Server
	way      *proxy
	delay    int
	services []string
}

// far makes the way as long as it is: a proxy that begins anew spoils nothing.
func (r *region) far(t *testing.T) {
	for _, upstream := range []bool{false, true} {
		r.way.add(t, spoil{"latency", upstream, map[string]int{"latency": r.delay}}, 1)
	}
}

// A planet is three regions around a home.
type planet struct {
	home    *redistest.Server
	regions []*region
}

// serveRegions starts a planet with the rules.
func serveRegions(t *testing.T, rules string) *planet {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "sash")
	if out, err := exec.Command("go", "build", "-o", binary, "example.com/sash/service/cmd/sash").CombinedOutput(); err != nil {
		t.Fatalf("building sash: %v\n%s", err, out)
	}
	path := filepath.Join(dir, "rules.yaml")
	check(t, os.WriteFile(path, []byte(rules), 0o600))
	p := &planet{home: redistest.Start(t)}
	for _, delay := range ways {
		r := &region{redis: redistest.Start(t), way: through(t, p.home.Addr()), delay: delay}
		r.far(t)
		for range 2 {
			r.services = append(r.services, serveSash(t, binary, "--config", path, "--redis", r.redis.Addr(), "--home", r.way.Listen,
				"--budget", "500ms")) // for the Redis next door, also on a busy machine
		}
		p.regions = append(p.regions, r)
	}
	return p
}

// serveSash starts sash serve on a free port, and returns its URL.
func serveSash(t *testing.T, binary string, args ...string) (url string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(binary, append([]string{"serve", "--json", "--log-level", "error", "--addr", "127.0.0.1:0", "--grpc-addr", "", "--admin-addr", ""}, args...)...)
	cmd.Env, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, &log
	out := must(cmd.StdoutPipe())(t)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var at struct{ URL string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &at) != nil {
		t.Fatalf("sash serve did not start: %v\n%s%s", err, line, log.String())
	}
	return at.URL
}

// faultsOfRegions happen after a part of the run.
var faultsOfRegions = []struct {
	name  string
	after float64
	do    func(t *testing.T, p *planet)
}{
	{"none", 0, func(*testing.T, *planet) {}},
	{"a region is cut off", 0.1, func(_ *testing.T, p *planet) { p.regions[2].way.Stop() }},
	{"its way is back", 0.4, func(t *testing.T, p *planet) { p.regions[2].way.heal(t); p.regions[2].far(t) }},
	{"a region's Redis restarts empty", 0.55, func(_ *testing.T, p *planet) { p.regions[1].redis.Restart() }},
	{"the home fails over, and keeps its state", 0.75, func(t *testing.T, p *planet) {
		for _, r := range p.regions {
			r.way.Stop()
		}
		replica := redistest.StartReplica(t, p.home.Addr())
		p.home.Must(t, "CLIENT", "PAUSE", "60000", "WRITE")
		await(t, "the replica has everything", func() bool {
			return p.home.Info(t, "replication", "master_repl_offset") == replica.Info(t, "replication", "master_repl_offset")
		})
		replica.Must(t, "REPLICAOF", "NO", "ONE")
		p.home = replica
		for _, r := range p.regions {
			r.way.Upstream = replica.Addr()
			r.way.heal(t)
			r.far(t)
		}
	}},
}

// admissions are what callers were admitted, by subject: between a call and its answer, by the clock that all of them have.
type admissions struct {
	mu       sync.Mutex
	subjects map[string][]judge.Charge // guarded by mu, and so are these
	calls    int
	leased   int
}

// call asks for units of a subject.
func (a *admissions) call(client *http.Client, url, rule, subject string, cost int) {
	body := fmt.Sprintf(`{"domain":"planet","entries":[{"key":%q,"value":%q}],"cost":%d}`, rule, subject, cost)
	sent := time.Now()
	res, err := client.Post(url+"/v1/allow", "application/json", strings.NewReader(body))
	if err != nil {
		return
	}
	defer res.Body.Close()
	var said struct {
		Allowed bool
		Source  string
	}
	_ = json.NewDecoder(res.Body).Decode(&said) // an answer that is none admits nothing
	done := sent.Add(time.Since(sent))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if said.Source == "lease" {
		a.leased++
	}
	if key := rule + ":" + subject; said.Allowed {
		a.subjects[key] = append(a.subjects[key], judge.Charge{From: sent.UnixNano(), To: done.UnixNano(), Units: int64(cost)})
	}
}

// ask has callers in all regions ask for a time, about twelve subjects with a large limit, whose demand moves around the
// planet, and about three with a small one. They are no more at once than a machine that is well needs for so many calls.
func (a *admissions) ask(p *planet, span time.Duration, perSecond int) {
	atOnce := make(chan struct{}, perSecond/2)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	var group sync.WaitGroup
	began := time.Now()
	for i := 0; time.Since(began) < span; i++ {
		at := time.Duration(i) * time.Second / time.Duration(perSecond)
		time.Sleep(time.Until(began.Add(at)))
		part := int(6 * at / span) // in each part another region has most of the demand
		in := (min(rand.IntN(20), 19)/14 + rand.IntN(20)/19 + part) % len(ways)
		url := p.regions[in].services[rand.IntN(2)]
		rule, subject := "large", fmt.Sprint((part+min(rand.IntN(12), rand.IntN(12)))%12)
		if i%30 == 0 {
			rule, subject = "small", fmt.Sprint(rand.IntN(3))
		}
		atOnce <- struct{}{}
		group.Go(func() { a.call(client, url, rule, subject, 1+rand.IntN(3)); <-atOnce })
	}
	group.Wait()
}

// worst returns the most units of a rule in any window, over its subjects.
func (a *admissions) worst(rule string, window time.Duration, units int64) (most int64) {
	for key, charges := range a.subjects {
		if strings.HasPrefix(key, rule+":") {
			full, _ := judge.Fullest(charges, window.Nanoseconds(), units)
			most = max(most, full.Units)
		}
	}
	return most
}

// Callers of three regions ask two processes of sash serve each about the same subjects, and the demand moves. Whatever
// happens to a region or to the home, no window has more than the limit over all regions.
func TestNoWindowHasMoreThanTheLimitOverAllRegions(t *testing.T) {
	span, runs := *regionsFor, faultsOfRegions
	if span == 0 {
		span, runs = 9*time.Second, runs[:1]
	}
	for i, f := range runs {
		name := f.name
		if *regionsFor == 0 {
			name = "all faults"
		}
		t.Run(name, func(t *testing.T) {
			window := max(2*time.Second, span/10)
			leased := max(620*time.Millisecond, window/4) // a little more than four trips of the furthest region
			large, small := window.Milliseconds()/5, int64(10)
			p := serveRegions(t, fmt.Sprintf("domain: planet\ndescriptors:\n"+
				"  - {key: large, limits: [%d/%v], scope: global, lease: %v, on_unavailable: closed}\n"+
				"  - {key: small, limits: [%d/%v], scope: global, lease: %v, on_unavailable: closed}\n", large, window, leased, small, window, leased))
			var faults sync.WaitGroup
			for k, f := range faultsOfRegions {
				if *regionsFor == 0 || k == i || i == 1 && k == 2 { // the way comes back
					faults.Go(func() { time.Sleep(time.Duration(f.after * float64(span))); f.do(t, p) })
				}
			}
			a := &admissions{subjects: make(map[string][]judge.Charge)}
			var most, least int64
			for again := 0; again < 6 && (a.leased == 0 || most < large/2 || least == 0); again++ { // a busy machine needs longer
				a.ask(p, span, 900)
				faults.Wait()
				most, least = a.worst("large", window, large), a.worst("small", window, small)
			}
			t.Logf("%d calls, %d by leases; worst window of %v: %d of %d units, %d of %d", a.calls, a.leased, window, most, large, least, small)
			if most > large || least > small {
				t.Error("a window has more than the limit")
			}
			if a.leased == 0 || most < large/2 || least == 0 {
				t.Error("no call was decided next door, or hardly any admitted: this test shows nothing")
			}
		})
	}
}

// A region 150 ms from its home decides one key 400 times a second next door, and then 12 and 200 keys 800 times, with clients
// whose pools are as they come. Where the machine makes calls late, hundreds may come at once, and they come again.
func TestAFarRegionWithClientsAsTheyCome(t *testing.T) {
	span := cmp.Or(*regionsFor, 5*time.Second)
	each(t, func(t *testing.T, a adapter) {
		home := redistest.Start(t)
		r := &region{redis: redistest.Start(t), way: through(t, home.Addr()), delay: 75}
		r.far(t)
		far, near := a.open(t, target{addrs: []string{r.way.Listen}, plain: true}), a.open(t, target{addrs: []string{r.redis.Addr()}, plain: true})
		leases := must(lease.Shared(far, near, time.Second, nil))(t)
		limiter := must(sash.New(leases, nil, sash.PerMinute(90_000)))(t)
		for keys, rate := range map[int]time.Duration{1: 400, 12: 800, 200: 800} {
			for again := range 3 {
				var calls, leased, failed atomic.Int64
				var group sync.WaitGroup
				start, last, late := time.Now(), time.Now(), time.Duration(0)
				for tick := time.NewTicker(time.Second / rate); time.Since(start) < span; <-tick.C {
					late, last = max(late, time.Since(last)), time.Now()
					group.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						defer cancel()
						n := int(calls.Add(1))
						res, err := limiter.Allow(ctx, fmt.Sprint(keys, "-", n%keys))
						switch {
						case err != nil || !res.Allowed:
							if failed.Add(1) == 1 {
								t.Logf("the first without an admission: %v, %v after the start", err, time.Since(start))
							}
						case res.Source == sash.FromLease:
							leased.Add(1)
						}
					})
				}
				group.Wait()
				t.Logf("%d keys: %d calls, up to %v late, %d by leases, %d without an admission",
					keys, calls.Load(), late, leased.Load(), failed.Load())
				if failed.Load() == 0 && leased.Load() >= calls.Load()/2 {
					break
				}
				starved := late > 50*time.Millisecond || calls.Load() < int64(span/(time.Second/rate))*9/10 // the machine is
				if !starved || again == 2 && failed.Load() > calls.Load()/4 {                               // a collapse takes three quarters
					t.Fatal("every call fits, and most are decided next door")
				}
			}
		}
	})
}
