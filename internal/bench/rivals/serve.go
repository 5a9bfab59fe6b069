package rivals

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/netbench"
	"example.com/sash/internal/bench/report"
)

// GoProgram is the argument with which the command that measures becomes the program of Go.
const GoProgram = "rivals-in-go"

// A limiter is a contender of the program of Go.
type limiter struct {
	named
	open func(sash.Limit) (decide load.Decide, end func(), err error)
}

// limiters returns the contenders of the program of Go on a Redis and over gRPC.
func limiters(redis string, services []remote) (all []limiter) {
	add := func(name, module string, open func(sash.Limit) (load.Decide, func(), error)) {
		versions := report.Versions(module) // of Go, and of the module unless this is a test
		_, version, _ := strings.Cut(versions[len(versions)-1], " v")
		all = append(all, limiter{named{name, version}, open})
	}
	// Those of netbench, with the module whose version is theirs. Sash is what is checked out, over a client of that version.
	for _, c := range []struct{ name, module string }{
		{"Sash plain, go-redis", "github.com/redis/go-redis/v9"},
		{"Sash plain, rueidis", "github.com/redis/rueidis"},
		{"Sash coalesce, go-redis", "github.com/redis/go-redis/v9"},
		{"Sash coalesce, rueidis", "github.com/redis/rueidis"},
		{"Sash stack, rueidis", "github.com/redis/rueidis"},
		{"redis_rate v10", "github.com/go-redis/redis_rate/v10"},
		{"redis_rate v10, automatic pipelining", "github.com/go-redis/redis_rate/v10"},
	} {
		add(c.name, c.module, func(l sash.Limit) (load.Decide, func(), error) { return netbench.Open(c.name, redis, l) })
	}
	add("redis-cell's arithmetic, a script", "github.com/redis/go-redis/v9",
		func(l sash.Limit) (load.Decide, func(), error) { return openCell(redis, l) })
	for _, s := range services {
		all = append(all, limiter{named{s.name, s.version}, s.open})
	}
	return all
}

// A desk answers the requests to the program of Go. It keeps the last contender open, so that a load finds the
// connections that the one before it has made.
type desk struct {
	limiters []limiter

	open   request // whose contender and limit are open
	decide load.Decide
	close  func()
}

// Serve is the program of Go: it decides until its input ends. Its arguments are the services over gRPC, three arguments
// each, and the two addresses of all programs.
func Serve(args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("rivals: the addresses of Redis and of sash serve are missing")
	}
	services, redis := args[:len(args)-2], args[len(args)-2]
	d := &desk{limiters: limiters(redis, remotes(services)), close: func() {}}
	defer func() { d.close() }()
	var h hello
	h.Runtime = runtime.Version()
	for _, l := range d.limiters {
		h.Contenders = append(h.Contenders, l.named)
	}
	to := json.NewEncoder(out)
	if err := to.Encode(h); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var a answer
		if err == nil {
			a, err = d.answer(r)
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := to.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

func (d *desk) answer(r request) (answer, error) {
	if of := (request{Contender: r.Contender, Units: r.Units, WindowMS: r.WindowMS}); of != d.open {
		if err := d.turn(of); err != nil {
			return answer{}, err
		}
	}
	switch r.Op {
	case "ask":
		allowed, err := d.decide(context.Background(), r.Key)
		return answer{Allowed: &allowed}, err
	case "load":
		return d.load(r), nil
	}
	return answer{}, fmt.Errorf("there is no operation %q", r.Op)
}

// turn opens a contender on a limit instead of the last one.
func (d *desk) turn(of request) (err error) {
	i := slices.IndexFunc(d.limiters, func(l limiter) bool { return l.Name == of.Contender })
	if i < 0 {
		return fmt.Errorf("there is no contender %q", of.Contender)
	}
	d.close()
	d.open, d.close = request{}, func() {}
	decide, end, err := d.limiters[i].open(sash.Every(of.Units, time.Duration(of.WindowMS)*time.Millisecond))
	if err != nil {
		return err
	}
	d.open, d.decide, d.close = of, decide, end
	return nil
}

// load makes decisions from several goroutines for a time.
func (d *desk) load(r request) answer {
	names := make([]string, r.Keys)
	for i := range names {
		names[i] = r.Prefix + ":" + strconv.Itoa(i)
	}
	var mu sync.Mutex // guards a and times
	var a answer
	times := hdrhistogram.New(1, time.Minute.Nanoseconds(), 3)
	var group sync.WaitGroup
	start := make(chan struct{})
	for range r.Callers {
		group.Go(func() {
			var decisions, admitted, failed int64
			own := hdrhistogram.New(1, time.Minute.Nanoseconds(), 3)
			<-start
			now := time.Now() // on a busy machine, a goroutine may start late
			for end := now.Add(time.Duration(r.ForMS) * time.Millisecond); now.Before(end); {
				allowed, err := d.decide(context.Background(), names[rand.IntN(len(names))])
				after := time.Now()
				_ = own.RecordValue(min(after.Sub(now), time.Minute).Nanoseconds()) // within its range
				now = after
				decisions++
				switch {
				case err != nil:
					failed++
				case allowed:
					admitted++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			a.Decisions, a.Admitted, a.Errors = a.Decisions+decisions-failed, a.Admitted+admitted, a.Errors+failed
			times.Merge(own)
		})
	}
	began := time.Now()
	close(start)
	group.Wait()
	a.MS = float64(time.Since(began).Microseconds()) / 1000
	a.P50, a.P99 = float64(times.ValueAtQuantile(50))/1000, float64(times.ValueAtQuantile(99))/1000
	return a
}
