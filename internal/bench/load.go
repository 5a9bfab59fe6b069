package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"

	"example.com/sash/internal/redistest"
)

// A workload is calls of one unit from so many callers on so many keys, under one limit.
type workload struct {
	name          string
	keys, callers int
	units         int64
	window        time.Duration
	refused       bool // nearly all calls; otherwise none may be, because a refusal costs less than an admission
	perSecond     int  // calls over all callers, at even distances; 0 is as many as are answered
}

// An outcome is what a contender did in one turn.
type outcome struct {
	Decisions int64   `json:"decisions"`
	Admitted  int64   `json:"admitted"`
	MS        float64 `json:"ms"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

func (o outcome) perSecond() float64 { return float64(o.Decisions) / o.MS * 1000 }

// A decide makes one decision on a key.
type decide func(ctx context.Context, key string) (allowed bool, err error)

// load decides from goroutines for a time.
func load(ctx context.Context, decide decide, w workload, d time.Duration) (outcome, error) {
	names := make([]string, w.keys)
	for i := range names {
		names[i] = fmt.Sprintf("bench:%d", i)
	}
	var o outcome
	var failed error
	var mu sync.Mutex // guards o, failed and times
	times := hdrhistogram.New(1, time.Minute.Nanoseconds(), 2)
	start := make(chan struct{})
	var turn atomic.Int64
	var began time.Time
	var group sync.WaitGroup
	for range w.callers {
		group.Go(func() {
			own := hdrhistogram.New(1, time.Minute.Nanoseconds(), 2)
			var decisions, admitted int64
			var err error
			<-start
			now := time.Now()
			for end := now.Add(d); now.Before(end) && err == nil; decisions++ {
				if w.perSecond > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(turn.Add(1)) * time.Second / time.Duration(w.perSecond))))
					now = time.Now()
				}
				var allowed bool
				if allowed, err = decide(ctx, names[rand.IntN(len(names))]); allowed {
					admitted++
				}
				after := time.Now()
				_ = own.RecordValue(min(after.Sub(now), time.Minute).Nanoseconds()) // within its range
				now = after
			}
			mu.Lock()
			defer mu.Unlock()
			times.Merge(own)
			o.Decisions, o.Admitted = o.Decisions+decisions, o.Admitted+admitted
			if err != nil {
				failed = err
			}
		})
	}
	began = time.Now()
	close(start)
	group.Wait()
	o.MS = float64(time.Since(began).Microseconds()) / 1000
	o.P50, o.P99 = float64(times.ValueAtQuantile(50))/1000, float64(times.ValueAtQuantile(99))/1000
	return o, failed
}

// A contender decides in turns.
type contender struct {
	name, version string
	load          func(w workload, d time.Duration) (outcome, error)
	close         func()
}

// inProcess is a contender of this program.
func (b *bench) inProcess(name string, decide decide, end func()) contender {
	return contender{name: name, close: end, load: func(w workload, d time.Duration) (outcome, error) {
		return load(b.ctx, decide, w, d)
	}}
}

// figures are the rounds of one contender under one workload.
type figures struct{ perSecond, p99, used figure }

// measure has every contender decide under a workload in turn, each after a quarter of a turn to warm up. used returns a
// total that grows with the work, such as the processor time of Redis in microseconds; its growth is divided by decisions.
// empty empties the store before each turn.
func (b *bench) measure(w workload, all []contender, used func(i int) (float64, error), empty func() error) ([]figures, error) {
	results := make([]figures, len(all))
	err := b.alternate(len(all), func(i int) error {
		if err := empty(); err != nil {
			return err
		}
		if _, err := all[i].load(w, b.turn/4); err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		before, err := used(i)
		if err != nil {
			return err
		}
		o, err := all[i].load(w, b.turn)
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		if !w.refused && o.Admitted != o.Decisions {
			return fmt.Errorf("%s refused %d of %d calls that have room", all[i].name, o.Decisions-o.Admitted, o.Decisions)
		}
		after, err := used(i)
		if err != nil {
			return err
		}
		f := &results[i]
		f.perSecond, f.p99 = append(f.perSecond, o.perSecond()), append(f.p99, o.P99)
		f.used = append(f.used, (after-before)/float64(max(1, o.Decisions)))
		return nil
	})
	return results, err
}

// A server is a redis-server that is measured.
type server struct {
	*redis.Client
	addr    string
	version string
	process *redistest.Server
}

func startRedis() (*server, error) {
	process, err := redistest.Run()
	if err != nil {
		return nil, err
	}
	s := &server{addr: process.Addr(), process: process}
	s.Client = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 1, MaxRetries: -1, Protocol: 2})
	info, err := s.InfoMap(context.Background(), "server").Result()
	if err != nil {
		s.stop()
		return nil, err
	}
	s.version = "Redis " + info["Server"]["redis_version"]
	return s, nil
}

func (s *server) stop() {
	_ = s.Close() // the server goes with it
	s.process.Stop()
}

func (s *server) flush() error { return s.FlushAll(context.Background()).Err() }

// processor returns the microseconds of processor time that the server has used.
func (s *server) processor() (float64, error) {
	info, err := s.InfoMap(context.Background(), "cpu").Result()
	if err != nil {
		return 0, err
	}
	var user, system float64
	_, err = fmt.Sscan(info["CPU"]["used_cpu_user"]+" "+info["CPU"]["used_cpu_sys"], &user, &system)
	return (user + system) * 1e6, err
}

// scriptTime returns the microseconds that the server has spent in EVALSHA since the last CONFIG RESETSTAT.
func (s *server) scriptTime() (float64, error) {
	info, err := s.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		return 0, err
	}
	var calls int64
	var micros float64
	_, err = fmt.Sscanf(info["Commandstats"]["cmdstat_evalsha"], "calls=%d,usec=%f,", &calls, &micros)
	return micros, err
}

// processorOf returns the microseconds of processor time that a process has used, from /proc.
func processorOf(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name, which may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var user, system float64 // in ticks of 10 ms
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return (user + system) * 10_000, err
}
