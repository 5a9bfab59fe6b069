// Package server runs the redis-server that is measured, and reads its own statistics.
package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"example.com/sash/internal/redistest"
)

// A Server is a redis-server of this program, with one connection for what is not measured.
type Server struct {
	*redis.Client
	Addr    string
	Version string // "redis-server 7.0.15"

	process *redistest.Server
}

// Start starts an empty server. The caller stops it.
func Start() (*Server, error) {
	process, err := redistest.Run()
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: process.Addr(), process: process}
	s.Client = redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: 1, MaxRetries: -1, Protocol: 2})
	about, err := s.InfoMap(context.Background(), "server").Result()
	if err != nil {
		s.Stop()
		return nil, err
	}
	s.Version = "redis-server " + about["Server"]["redis_version"]
	return s, nil
}

// Stop ends the server.
func (s *Server) Stop() {
	_ = s.Close() // the server goes with it
	s.process.Stop()
}

// Pid returns the process ID.
func (s *Server) Pid() int { return s.process.Pid() }

// Flush removes every key and frees its memory before it returns.
func (s *Server) Flush() error { return s.FlushAll(context.Background()).Err() }

// Processor returns the microseconds of processor time that the server has used.
func (s *Server) Processor() (float64, error) {
	seconds, err := s.numbers("CPU", "used_cpu_user", "used_cpu_sys")
	if err != nil {
		return 0, err
	}
	return (seconds[0] + seconds[1]) * 1e6, nil
}

// UsedMemory returns the bytes that the server uses, without the buffers of its clients.
func (s *Server) UsedMemory() (float64, error) {
	bytes, err := s.numbers("Memory", "used_memory", "mem_clients_normal")
	if err != nil {
		return 0, err
	}
	return bytes[0] - bytes[1], nil
}

// KeyMemory returns the bytes that the server uses for all keys: MEMORY USAGE, which counts the value, the name
// and Redis's own records.
func (s *Server) KeyMemory() (float64, error) {
	ctx := context.Background()
	keys, err := s.Keys(ctx, "*").Result()
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, key := range keys {
		bytes, err := s.MemoryUsage(ctx, key, 0).Result() // every element, no samples
		if err != nil && !errors.Is(err, redis.Nil) {     // nil: it has just expired
			return 0, err
		}
		sum += bytes
	}
	return float64(sum), nil
}

// numbers returns numbers of a section of INFO.
func (s *Server) numbers(section string, names ...string) ([]float64, error) {
	info, err := s.InfoMap(context.Background(), section).Result()
	if err != nil {
		return nil, err
	}
	values := make([]float64, len(names))
	for i, name := range names {
		if values[i], err = strconv.ParseFloat(info[section][name], 64); err != nil {
			return nil, fmt.Errorf("server: %s of INFO %s: %w", name, section, err)
		}
	}
	return values, nil
}

// ScriptTime returns the microseconds that the server has spent in EVALSHA since the last CONFIG RESETSTAT.
func (s *Server) ScriptTime() (float64, error) {
	info, err := s.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		return 0, err
	}
	var calls int64
	var micros float64
	if _, err := fmt.Sscanf(info["Commandstats"]["cmdstat_evalsha"], "calls=%d,usec=%f,", &calls, &micros); err != nil {
		return 0, fmt.Errorf("server: EVALSHA in INFO commandstats: %w", err)
	}
	return micros, nil
}
