package redisbench

import (
	"fmt"
	"strings"
	"time"

	"example.com/sash"
)

// slowest returns the microseconds of the slowest single EVALSHA since the slow log was reset.
func (s *server) slowest() (float64, error) {
	entries, err := s.process.Do("SLOWLOG", "GET", "-1")
	if err != nil {
		return 0, err
	}
	all, _ := entries.([]any)
	most := int64(0)
	for _, e := range all {
		// An entry is id, time, microseconds, command and more.
		entry, _ := e.([]any)
		if len(entry) < 4 {
			return 0, fmt.Errorf("redisbench: a slow log entry of %d fields", len(entry))
		}
		command, _ := entry[3].([]any)
		if took, _ := entry[2].(int64); len(command) > 0 && strings.EqualFold(fmt.Sprint(command[0]), "EVALSHA") {
			most = max(most, took)
		}
	}
	return float64(most), nil
}

// watch makes the slow log record calls from the given microseconds on.
func (s *server) watch(micros int) error {
	for _, args := range [][]string{
		{"CONFIG", "SET", "slowlog-max-len", "100000"},
		{"CONFIG", "SET", "slowlog-log-slower-than", fmt.Sprint(micros)},
		{"SLOWLOG", "RESET"},
	} {
		if _, err := s.process.Do(args...); err != nil {
			return err
		}
	}
	return nil
}

// slowestWhileFilling returns the slowest call while a key goes from nothing to the most entries.
func (s *server) slowestWhileFilling(c contender) (float64, error) {
	if err := s.flush(); err != nil {
		return 0, err
	}
	if err := s.watch(20); err != nil {
		return 0, err
	}
	j := job{"fill", 1, []sash.Limit{sash.Every(sash.MaxEntries, time.Hour)}}
	if _, err := s.decide(c, []job{j}, sash.MaxEntries); err != nil {
		return 0, err
	}
	return s.slowest()
}

// burst is the short window of afterBurst.
const burst = 3 * time.Second

// afterBurst fills a key, keeps it alive with one later call, waits until the burst has left a window of
// that length, and returns the microseconds of the next call. Further limits may be longer.
func (s *server) afterBurst(c contender, longer ...sash.Limit) (float64, error) {
	if err := s.flush(); err != nil {
		return 0, err
	}
	jobs := []job{{"burst", 1, append([]sash.Limit{sash.Every(sash.MaxEntries, burst)}, longer...)}}
	if _, err := s.decide(c, jobs, sash.MaxEntries-2); err != nil {
		return 0, err
	}
	time.Sleep(burst / 2)
	if _, err := s.decide(c, jobs, 1); err != nil {
		return 0, err
	}
	time.Sleep(burst/2 + 200*time.Millisecond)
	if err := s.watch(0); err != nil {
		return 0, err
	}
	if _, err := s.decide(c, jobs, 1); err != nil {
		return 0, err
	}
	return s.slowest()
}
