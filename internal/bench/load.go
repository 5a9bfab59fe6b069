package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"

	"example.com/sash/internal/redistest"
)

// A workload is calls of one unit from a number of callers on a number of keys, under one limit.
type workload struct {
	name          string
	keys, callers int
	units         int64
	window        time.Duration
	refused       bool // nearly all calls are refused; otherwise none may be, because a refusal costs less than an admission
	perSecond     int  // calls over all callers, at even distances; 0 is as many as the limiter answers
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

func load(ctx context.Context, decide decide, w workload, d time.Duration) (o outcome, failed error) {
	names := make([]string, w.keys)
	for i := range names {
		names[i] = fmt.Sprintf("bench:%d", i)
	}
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
}

func (b *bench) inProcess(name string, decide decide) contender {
	return contender{name: name, load: func(w workload, d time.Duration) (outcome, error) {
		return load(b.ctx, decide, w, d)
	}}
}

// figures are the rounds of one contender under one workload.
type figures struct{ perSecond, p50, p99, used figure }

// measure has every contender decide under a workload in turn, each after a quarter of a turn to warm up. used returns a
// total that grows with the work, such as the processor time of Redis in microseconds. measure divides its growth by the
// decisions. empty empties the store before each turn.
func (b *bench) measure(w workload, all []contender, used func(i int) float64, empty func()) []figures {
	results := make([]figures, len(all))
	b.alternate(len(all), func(i int) {
		empty()
		_, err := all[i].load(w, b.turn/4)
		check(err, all[i].name)
		before := used(i)
		o, err := all[i].load(w, b.turn)
		check(err, all[i].name)
		if !w.refused && o.Admitted != o.Decisions {
			check(fmt.Errorf("%s refused %d of %d calls that have room", all[i].name, o.Decisions-o.Admitted, o.Decisions))
		}
		f := &results[i]
		f.perSecond, f.p50, f.p99 = append(f.perSecond, o.perSecond()), append(f.p50, o.P50), append(f.p99, o.P99)
		f.used = append(f.used, (used(i)-before)/float64(max(1, o.Decisions)))
	})
	return results
}

// A server is a redis-server that is measured.
type server struct {
	*redistest.Server
	*redis.Client
	version string
}

func startRedis() *server {
	s := &server{Server: must(redistest.Run())}
	s.Client = redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1, MaxRetries: -1, Protocol: 2})
	s.version = "Redis " + s.info("Server", "redis_version")
	return s
}

func (s *server) flush() { check(s.FlushAll(context.Background()).Err()) }

func (s *server) info(section, field string) string {
	return must(s.InfoMap(context.Background(), section).Result())[section][field]
}

// processor returns the microseconds of processor time that the server has used.
func (s *server) processor() float64 {
	return sum(s.info("CPU", "used_cpu_user"), s.info("CPU", "used_cpu_sys")) * 1e6
}

// scriptTime returns the microseconds that the server has spent in EVALSHA since the last CONFIG RESETSTAT.
func (s *server) scriptTime() (micros float64) {
	var calls int64
	must(fmt.Sscanf(s.info("Commandstats", "cmdstat_evalsha"), "calls=%d,usec=%f,", &calls, &micros))
	return micros
}

// processorOf returns the microseconds of processor time that a process has used, from /proc.
func processorOf(pid int) float64 {
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name, which may hold anything
	fields := strings.Fields(rest)
	return sum(fields[11], fields[12]) * 10_000 // in ticks of 10 ms
}

func sum(user, system string) float64 {
	return must(strconv.ParseFloat(user, 64)) + must(strconv.ParseFloat(system, 64))
}
