package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/goredisstore"
	"example.com/sash/redisstore"
	"example.com/sash/rueidisstore"
	"example.com/sash/stack"
)

// workloads, except for the last, have limits that no contender reaches. The windows are whole seconds, because some
// libraries count in seconds.
var workloads = []workload{
	{name: "1,000 keys, 64 callers", keys: 1000, callers: 64, units: 10_000, window: time.Minute},
	{name: "one hot key below its limit, 64 callers", keys: 1, callers: 64, units: 20_000_000, window: time.Second},
	{name: "one hot key over its limit, 64 callers", keys: 1, callers: 64, units: 100, window: time.Hour, refused: true},
}

// An opener opens a limiter of this program on a Redis, for one workload. Its clients stay open, but idle, afterwards.
type opener struct {
	name string
	open func(addr string, w workload) decide
}

var openers = []opener{
	{"Sash, go-redis", func(addr string, w workload) decide { return openSash(overGoRedis(addr), w) }},
	{"Sash, rueidis", func(addr string, w workload) decide { return openSash(overRueidis(addr), w) }},
	{"Sash stack, rueidis", func(addr string, w workload) decide { return openSash(stacked(overRueidis(addr), 0), w) }},
	{"Sash stack with leases, rueidis", func(addr string, w workload) decide {
		return openSash(stacked(overRueidis(addr), min(100*time.Millisecond, w.window/100)), w)
	}},
	{"redis_rate", openRedisRate}, {"ulule/limiter", openUlule}, {"throttled", openThrottled},
}

func overGoRedis(addr string) *redisstore.Store { return goredisstore.New(newClient(addr), nil) }

func overRueidis(addr string) driver.Store {
	return rueidisstore.New(must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})), nil)
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
}

// stacked puts the decorators of a stack over a store. Every answer is Redis's.
func stacked(store driver.Store, lease time.Duration) driver.Store {
	return must(stack.New(store, &stack.Options{Lease: lease, Failover: failover.Options{Budget: time.Minute}}))
}

func openSash(store driver.Store, w workload) decide {
	limiter := must(sash.New(store, nil, sash.Every(w.units, w.window)))
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	}
}

// openRedisRate is github.com/go-redis/redis_rate: GCRA in a script.
func openRedisRate(addr string, w workload) decide {
	limiter := redis_rate.NewLimiter(newClient(addr))
	limit := redis_rate.Limit{Rate: int(w.units), Burst: int(w.units), Period: w.window}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key, limit)
		return err == nil && res.Allowed > 0, err
	}
}

// openUlule is github.com/ulule/limiter: a fixed window that begins with its first call.
func openUlule(addr string, w workload) decide {
	l := limiter.New(must(ululestore.NewStore(newClient(addr))), limiter.Rate{Limit: w.units, Period: w.window})
	return func(ctx context.Context, key string) (bool, error) {
		res, err := l.Get(ctx, key)
		return err == nil && !res.Reached, err
	}
}

// openThrottled is github.com/throttled/throttled: GCRA by compare and swap, which gives up after ten tries. In the workload
// of refusals, such a call counts as refused.
func openThrottled(addr string, w workload) decide {
	store := must(throttledstore.NewCtx(newClient(addr), "throttled:"))
	l := must(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(w.units), w.window), MaxBurst: int(w.units) - 1,
	}))
	return func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		if w.refused {
			return false, nil
		}
		return !limited && err == nil, err
	}
}

func (b *bench) limiters() {
	s := startRedis()
	defer s.Stop()
	versions := append([]string{s.version}, modules("github.com/redis/go-redis/v9", "github.com/redis/rueidis",
		"github.com/go-redis/redis_rate/v10", "github.com/ulule/limiter/v3", "github.com/throttled/throttled/v2")...)
	var others []contender
	var missing []string
	for _, p := range programs {
		b.say("installing %s", p.name)
		c, end, err := b.program(p, s.Addr())
		if err != nil {
			b.say("not measured: %s: %v", p.name, err)
			missing = append(missing, "without "+p.name)
			continue
		}
		defer end()
		others, versions = append(others, c), append(versions, c.version)
	}
	for i, w := range workloads {
		b.say("%s", w.name)
		t := table{name: w.name, head: []string{"limiter", "decisions/s", "p99 µs", "Redis µs a decision"}}
		if i == 0 {
			t.versions = append(versions, missing...)
		}
		var all []contender
		for _, o := range openers {
			if o.name != "throttled" || w.keys > 1 || w.refused { // otherwise 73 % of its calls fail
				all = append(all, b.inProcess(o.name, o.open(s.Addr(), w)))
			}
		}
		all = append(all, others...)
		for i, f := range b.measure(w, all, func(int) float64 { return s.processor() }, s.flush) {
			t.row(all[i].name, f.perSecond, f.p99, f.used)
		}
		b.tables = append(b.tables, t)
	}
}

// A program has a limiter of another language. It gets the address of Redis as its argument and writes one line of JSON
// with its version. Then it reads workloads, one a line, and answers each with a line that has the outcome.
type program struct {
	name, dir string
	get       [][]string // installs it, in a copy of its folder
	start     []string
}

var programs = []program{
	{
		"limits, moving window (Python)", "python",
		[][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "-r", "requirements.txt"},
		},
		[]string{"venv/bin/python", "main.py"},
	},
	{
		"rate-limiter-flexible, fixed window (Node)", "node",
		[][]string{{"npm", "install", "--silent", "--no-audit", "--no-fund"}},
		[]string{"node", "main.js"},
	},
	{
		"bucket4j, token bucket (Java)", "java",
		[][]string{{"mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"}},
		[]string{"java", "-cp", "target/classes:lib/*", "Main"},
	},
}

func (b *bench) program(p program, redis string) (c contender, end func(), err error) {
	dir := filepath.Join(b.dir, p.dir)
	if err := install(b, p.dir, dir, p.get); err != nil {
		return c, nil, err
	}
	cmd := exec.Command(p.start[0], append(p.start[1:len(p.start):len(p.start)], redis)...)
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, os.Stderr, time.Second
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		return c, nil, err
	}
	end = func() {
		_ = in.Close() // it ends with its input
		_ = cmd.Wait()
	}
	answers := json.NewDecoder(out)
	var hello struct{ Version string }
	if err := answers.Decode(&hello); err != nil {
		end()
		return c, nil, fmt.Errorf("the program's version: %w", err)
	}
	return contender{p.name, hello.Version, func(w workload, d time.Duration) (outcome, error) {
		ask, _ := json.Marshal(map[string]any{ // of numbers
			"keys": w.keys, "callers": w.callers, "units": w.units, "window_ms": w.window.Milliseconds(), "for_ms": d.Milliseconds(),
		})
		if _, err := fmt.Fprintf(in, "%s\n", ask); err != nil {
			return outcome{}, err
		}
		var o outcome
		err := answers.Decode(&o)
		return o, err
	}}, end, nil
}

// install copies a folder and runs the commands in it, unless it has done so before.
func install(b *bench, name, dir string, commands [][]string) error {
	done := filepath.Join(dir, ".installed") // written last
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(filepath.Join("rivals", name)))); err != nil {
		return err
	}
	for _, command := range commands {
		cmd := exec.CommandContext(b.ctx, command[0], command[1:]...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
		}
	}
	return os.WriteFile(done, nil, 0o644)
}

func modules(paths ...string) (versions []string) {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if slices.Contains(paths, dep.Path) {
			versions = append(versions, strings.TrimPrefix(dep.Path, "github.com/")+" "+dep.Version)
		}
	}
	return versions
}
