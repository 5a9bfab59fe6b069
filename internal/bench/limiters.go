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
	"example.com/sash/rueidisstore"
	"example.com/sash/stack"
)

// workloads have room for everything that a contender can do, but for the last. The windows are whole seconds, since some
// libraries count in them.
var workloads = []workload{
	{name: "1,000 keys, 64 callers", keys: 1000, callers: 64, units: 10_000, window: time.Minute},
	{name: "one hot key below its limit, 64 callers", keys: 1, callers: 64, units: 20_000_000, window: time.Second},
	{name: "one hot key over its limit, 64 callers", keys: 1, callers: 64, units: 100, window: time.Hour, refused: true},
}

// An opener opens a limiter of this program on a Redis, for one workload.
type opener struct {
	name string
	open func(addr string, w workload) (decide, func(), error)
}

var openers = []opener{
	{"Sash, go-redis", func(addr string, w workload) (decide, func(), error) { return openSash(overGoRedis, addr, w, nil) }},
	{"Sash, rueidis", func(addr string, w workload) (decide, func(), error) { return openSash(overRueidis, addr, w, nil) }},
	{"Sash stack, rueidis", func(addr string, w workload) (decide, func(), error) {
		return openSash(overRueidis, addr, w, &stack.Options{})
	}},
	{"Sash stack with leases, rueidis", func(addr string, w workload) (decide, func(), error) {
		return openSash(overRueidis, addr, w, &stack.Options{Lease: min(100*time.Millisecond, w.window/100)})
	}},
	{"redis_rate", openRedisRate}, {"ulule/limiter", openUlule}, {"throttled", openThrottled},
}

func overGoRedis(addr string) (driver.Store, func(), error) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	return goredisstore.New(c, nil), func() { _ = c.Close() }, nil
}

func overRueidis(addr string) (driver.Store, func(), error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	return rueidisstore.New(c, nil), c.Close, nil
}

// openSash opens Sash over a client, behind the decorators of the options if there are any. Every answer is Redis's.
func openSash(client func(string) (driver.Store, func(), error), addr string, w workload, opts *stack.Options) (decide, func(), error) {
	store, end, err := client(addr)
	if err != nil {
		return nil, nil, err
	}
	if opts != nil {
		o := *opts
		o.Failover = failover.Options{Budget: time.Minute}
		stacked, err := stack.New(store, &o)
		if err != nil {
			return nil, nil, err
		}
		plain := end
		store, end = stacked, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = stacked.Close(ctx) // the server is about to stop
			plain()
		}
	}
	limiter, err := sash.New(store, nil, sash.Every(w.units, w.window))
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	}, end, nil
}

// openRedisRate is github.com/go-redis/redis_rate: GCRA in a script.
func openRedisRate(addr string, w workload) (decide, func(), error) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	limiter := redis_rate.NewLimiter(c)
	limit := redis_rate.Limit{Rate: int(w.units), Burst: int(w.units), Period: w.window}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key, limit)
		return err == nil && res.Allowed > 0, err
	}, func() { _ = c.Close() }, nil
}

// openUlule is github.com/ulule/limiter: a fixed window that begins with its first call.
func openUlule(addr string, w workload) (decide, func(), error) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	store, err := ululestore.NewStore(c)
	if err != nil {
		return nil, nil, err
	}
	l := limiter.New(store, limiter.Rate{Limit: w.units, Period: w.window})
	return func(ctx context.Context, key string) (bool, error) {
		res, err := l.Get(ctx, key)
		return err == nil && !res.Reached, err
	}, func() { _ = c.Close() }, nil
}

// openThrottled is github.com/throttled/throttled: GCRA by compare and swap, which gives up after ten tries. Over its limit
// such a call counts as refused.
func openThrottled(addr string, w workload) (decide, func(), error) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	store, err := throttledstore.NewCtx(c, "throttled:")
	if err != nil {
		return nil, nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(w.units), w.window), MaxBurst: int(w.units) - 1,
	})
	return func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		if w.refused {
			return false, nil
		}
		return !limited && err == nil, err
	}, func() { _ = c.Close() }, err
}

// limiters measures limiters on one Redis.
func (b *bench) limiters() error {
	s, err := startRedis()
	if err != nil {
		return err
	}
	defer s.stop()
	versions := append([]string{s.version}, modules("github.com/redis/go-redis/v9", "github.com/redis/rueidis",
		"github.com/go-redis/redis_rate/v10", "github.com/ulule/limiter/v3", "github.com/throttled/throttled/v2")...)
	var others []contender
	var missing []string
	for _, p := range programs {
		b.say("installing %s", p.name)
		c, err := b.program(p, s.addr)
		if err != nil {
			b.say("not measured: %s: %v", p.name, err)
			missing = append(missing, "without "+p.name)
			continue
		}
		defer c.close()
		others, versions = append(others, c), append(versions, c.version)
	}
	for i, w := range workloads {
		b.say("%s", w.name)
		t := table{name: w.name, head: []string{"limiter", "decisions/s", "p99 µs", "Redis µs a decision"}}
		if i == 0 {
			t.versions = append(versions, missing...)
		}
		if err := b.limitersUnder(w, s, others, &t); err != nil {
			return err
		}
		b.tables = append(b.tables, t)
	}
	return nil
}

func (b *bench) limitersUnder(w workload, s *server, others []contender, t *table) error {
	var all []contender
	for _, o := range openers {
		if o.name == "throttled" && w.keys == 1 && !w.refused {
			continue // 73 % of its calls fail there
		}
		decide, end, err := o.open(s.addr, w)
		if err != nil {
			return err
		}
		defer end()
		all = append(all, b.inProcess(o.name, decide, end))
	}
	all = append(all, others...)
	results, err := b.measure(w, all, func(int) (float64, error) { return s.processor() }, s.flush)
	if err != nil {
		return err
	}
	for i, f := range results {
		t.row(all[i].name, f.perSecond, f.p99, f.used)
	}
	return nil
}

// A program has a limiter of another language. It gets the address of Redis as its argument and writes one line of JSON
// with its version. Then it answers each line with a workload by one with an outcome.
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

// program installs and starts a program.
func (b *bench) program(p program, redis string) (contender, error) {
	dir := filepath.Join(b.dir, p.dir)
	if err := install(b, p.dir, dir, p.get); err != nil {
		return contender{}, err
	}
	cmd := exec.Command(p.start[0], append(p.start[1:len(p.start):len(p.start)], redis)...)
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, os.Stderr, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return contender{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return contender{}, err
	}
	if err := cmd.Start(); err != nil {
		return contender{}, err
	}
	end := func() {
		_ = in.Close() // it ends with its input
		_ = cmd.Wait()
	}
	answers := json.NewDecoder(out)
	var hello struct{ Version string }
	if err := answers.Decode(&hello); err != nil {
		end()
		return contender{}, fmt.Errorf("the program's version: %w", err)
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
	}, end}, nil
}

// install copies a folder and runs the commands in it, unless that has been done.
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

// modules returns the versions of modules of this program.
func modules(paths ...string) (versions []string) {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if slices.Contains(paths, dep.Path) {
			versions = append(versions, strings.TrimPrefix(dep.Path, "github.com/")+" "+dep.Version)
		}
	}
	return versions
}
