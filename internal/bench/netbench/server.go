package netbench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/internal/bench/load"
	"example.com/sash/redistest"
)

// info returns numbers of the server's INFO.
func info(server *redistest.Server, section string, names ...string) ([]float64, error) {
	text, err := server.Do("INFO", section)
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for line := range strings.Lines(fmt.Sprint(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			if f, err := strconv.ParseFloat(value, 64); err == nil {
				found[name] = f
			}
		}
	}
	values := make([]float64, len(names))
	for i, name := range names {
		v, ok := found[name]
		if !ok {
			return nil, fmt.Errorf("netbench: INFO %s has no %s", section, name)
		}
		values[i] = v
	}
	return values, nil
}

// processor returns the seconds of processor time that the server has used.
func processor(server *redistest.Server) (float64, error) {
	v, err := info(server, "cpu", "used_cpu_user", "used_cpu_sys")
	if err != nil {
		return 0, err
	}
	return v[0] + v[1], nil
}

// memory returns the bytes that the server keeps for all keys.
func memory(server *redistest.Server) (float64, error) {
	keys, err := server.Do("KEYS", "*")
	if err != nil {
		return 0, err
	}
	all, _ := keys.([]any)
	sum := 0.0
	for _, key := range all {
		n, err := server.Do("MEMORY", "USAGE", fmt.Sprint(key), "SAMPLES", "0")
		if err != nil {
			return 0, err
		}
		bytes, _ := n.(int64) // nothing when the key has just expired
		sum += float64(bytes)
	}
	return sum, nil
}

func flush(server *redistest.Server) error {
	_, err := server.Do("FLUSHALL", "SYNC")
	return err
}

// An outcome has the microseconds of Redis's processor time a decision, too.
type outcome struct {
	load.Outcome
	server float64
}

// once measures one contender once.
func (r *run) once(c contender, s scenario, goroutines int) (outcome, error) {
	if err := flush(r.server); err != nil {
		return outcome{}, err
	}
	o, err := c.open(r.server.Addr(), s.quota)
	if err != nil {
		return outcome{}, err
	}
	defer o.close()
	chosen := r.chosen(s)
	if err := s.fill(context.Background(), o, chosen); err != nil {
		return outcome{}, fmt.Errorf("%s, %s: %w", c.name, s.name, err)
	}
	runtime.GC()
	var used [2]float64
	note := func(into *float64) func() error {
		return func() (err error) {
			*into, err = processor(r.server)
			return err
		}
	}
	out, err := load.Drive(o.decide, chosen, goroutines, r.Long/4, r.Long, note(&used[0]), note(&used[1]))
	if err != nil {
		return outcome{}, err
	}
	if c.ours && out.Failed > 0 {
		r.say("%s: %d of %d calls failed: %v", c.name, out.Failed, out.Failed+out.Decisions, out.Err)
	}
	return outcome{out, (used[1] - used[0]) * 1e6 / float64(max(1, out.Decisions))}, nil
}

// perAdmitted returns the bytes that Redis keeps for an admitted call, at about a thousand calls a key.
func (r *run) perAdmitted(c contender) (float64, error) {
	const keys, callers = 50, 64
	if err := flush(r.server); err != nil {
		return 0, err
	}
	o, err := c.open(r.server.Addr(), memoryQuota)
	if err != nil {
		return 0, err
	}
	defer o.close()
	ctx := context.Background()
	var asked, admitted atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for n := asked.Add(1); n <= 1000*keys; n = asked.Add(1) {
				if allowed, err := o.decide(ctx, fmt.Sprintf("client:%06d", n%keys)); allowed && err == nil {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	time.Sleep(longest(memoryQuota)) // what a lease has left goes back
	bytes, err := memory(r.server)
	return bytes / float64(max(1, admitted.Load())), err
}

// scriptTime returns the microseconds that an EVALSHA took on average since the statistics were reset.
func scriptTime(server *redistest.Server) (float64, error) {
	text, err := server.Do("INFO", "commandstats")
	if err != nil {
		return 0, err
	}
	_, line, found := strings.Cut(fmt.Sprint(text), "cmdstat_evalsha:")
	_, value, named := strings.Cut(line, "usec_per_call=")
	value, _, _ = strings.Cut(value, ",")
	if !found || !named {
		return 0, fmt.Errorf("netbench: no EVALSHA in the command statistics")
	}
	return strconv.ParseFloat(value, 64)
}
