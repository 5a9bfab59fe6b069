// Package redisbench measures decisions on a real redis-server: the server's own time for each, from
// its command statistics, and the memory that its keys take.
package redisbench

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/redisstore"
	"example.com/sash/redistest"
)

// batch is how many calls are on their way at once.
const batch = 64

// A server is a redis-server of this program, and one connection to it.
type server struct {
	process *redistest.Server
	client  *redis.Client
}

func start() (*server, error) {
	process, err := redistest.Run()
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: process.Addr(), PoolSize: 1, MaxRetries: -1, Protocol: 2})
	return &server{process, client}, nil
}

func (s *server) stop() {
	s.client.Close()
	s.process.Stop()
}

// load makes a script known to the server.
func (s *server) load(script *redisstore.Script) error {
	_, err := s.process.Do("SCRIPT", "LOAD", script.Text)
	return err
}

// flush removes every key and waits for their memory.
func (s *server) flush() error {
	_, err := s.process.Do("FLUSHALL", "SYNC")
	return err
}

// version returns the server's name and version.
func (s *server) version() (string, error) {
	info, err := s.process.Do("INFO", "server")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(fmt.Sprint(info)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return "redis-server " + v, nil
		}
	}
	return "redis-server of unknown version", nil
}

// A tally is what came of a run.
type tally struct {
	decisions int
	allowed   int     // decisions in which every call was admitted
	left      int64   // units left after the last decision
	micros    float64 // server time of one decision
	wall      time.Duration
}

// share is the part of the decisions that was admitted, in percent.
func (t tally) share() float64 { return 100 * float64(t.allowed) / float64(t.decisions) }

// decide makes n decisions, the jobs in turn, with a batch of calls on their way at a time.
func (s *server) decide(c contender, jobs []job, n int) (tally, error) {
	calls := make([][]call, len(jobs))
	for i, j := range jobs {
		calls[i] = c.calls(j)
		for _, call := range calls[i] {
			if err := s.load(call.script); err != nil {
				return tally{}, err
			}
		}
	}
	if _, err := s.process.Do("CONFIG", "RESETSTAT"); err != nil {
		return tally{}, err
	}
	t := tally{decisions: n}
	ctx := context.Background()
	began := time.Now()
	for done := 0; done < n; {
		pipe := s.client.Pipeline()
		var of []int // the job of each command
		for ; done < n && pipe.Len() < batch; done++ {
			i := done % len(jobs)
			for _, call := range calls[i] {
				pipe.EvalSha(ctx, call.script.SHA1, call.keys, call.args()...)
				of = append(of, i)
			}
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil {
			return t, fmt.Errorf("%s: %w", c.name, err)
		}
		per := len(calls[0])
		for i := 0; i < len(cmds); i += per {
			all := true
			for k, cmd := range cmds[i : i+per] {
				v, err := c.read(jobs[of[i+k]], cmd.(*redis.Cmd).Val())
				if err != nil {
					return t, err
				}
				all = all && v.allowed
				t.left = v.left
			}
			if all {
				t.allowed++
			}
		}
	}
	t.wall = time.Since(began)
	usec, err := s.evalshaTime()
	t.micros = usec / float64(n)
	return t, err
}

var evalshaStat = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// evalshaTime returns the microseconds that the server spent in EVALSHA since the last CONFIG RESETSTAT.
func (s *server) evalshaTime() (float64, error) {
	info, err := s.process.Do("INFO", "commandstats")
	if err != nil {
		return 0, err
	}
	m := evalshaStat.FindStringSubmatch(fmt.Sprint(info))
	if m == nil {
		return 0, fmt.Errorf("redisbench: no EVALSHA in the command statistics")
	}
	return strconv.ParseFloat(m[1], 64)
}
