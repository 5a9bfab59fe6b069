package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/sash/internal/redistest"
)

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
	sum := 0.0
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return 0, fmt.Errorf("%s of INFO: %w", name, err)
		}
		sum += seconds * 1e6
	}
	return sum, nil
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
	sum := 0.0
	for _, field := range fields[11:13] { // user and system time, in ticks of 10 ms
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, err
		}
		sum += ticks * 10_000
	}
	return sum, nil
}
