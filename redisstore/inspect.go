package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// A State is the contents of a key of a Store at one instant, for people who debug one subject.
type State struct {
	// Key is the name of the key on Redis.
	Key string
	// At is the server's clock.
	At time.Time
	// TTL is the time until the key expires. It is negative for a key without an expiry, which no script of the store
	// leaves behind.
	TTL time.Duration
	// Bytes is the memory of the key on the server; zero if the user may not run MEMORY USAGE.
	Bytes int64
	// Log is set under SlidingLog, SlidingBuckets and SortedSetLog.
	Log *Log
	// Counted is set under the other algorithms: one for each window, calendar windows first, then the shortest.
	Counted []Counted

	key       string // of the subject
	algorithm driver.Algorithm
}

// forms are the types of the values, and how much of a value to read.
var forms = [...]string{
	driver.SlidingLog:     fmt.Sprintf("log %d", mostLogBytes),
	driver.SortedSetLog:   fmt.Sprintf("zset %d", sash.MaxEntries+1000), // and some that are not removed yet
	driver.SlidingBuckets: fmt.Sprintf("log %d", mostLogBytes),
	driver.SlidingCounter: fmt.Sprintf("log %d", mostWindowsBytes),
	driver.FixedWindow:    fmt.Sprintf("log %d", mostWindowsBytes),
	driver.GCRA:           fmt.Sprintf("log %d", mostWindowsBytes),
}

// inspectReply is the number of bytes before the value.
const inspectReply = 32

// Inspect returns the contents of a subject's key under a policy's algorithm and resolution, or nil if there is no such
// key. It only reads, in one step on the server. The work is proportional to the value: a few milliseconds for a log of
// 100,000 entries, and for a sorted set up to half a second, during which Redis does nothing else. It needs the
// rights of a decision, and MEMORY USAGE for Bytes. A key of another type is an error.
func (s *Store) Inspect(ctx context.Context, key string, policy *driver.Policy) (*State, error) {
	name := s.Key(key, policy)
	reply, err := s.send(ctx, inspect, []string{name}, forms[policy.Algorithm])
	if err != nil {
		return nil, err
	}
	state, err := readState(policy.Algorithm, []byte(reply))
	if err != nil {
		return nil, fmt.Errorf("%w: the key %.200s", err, name)
	}
	if state != nil {
		state.Key, state.key = name, key
	}
	return state, nil
}

// readState reads the reply of inspect.lua.
func readState(algorithm driver.Algorithm, reply []byte) (*State, error) {
	if len(reply) < inspectReply {
		return nil, errReply
	}
	number := func(i int) int64 { return int64(binary.BigEndian.Uint64(reply[8*i:])) }
	at, ttl, bytes, size := number(0), number(1), number(2), number(3)
	value := reply[inspectReply:]
	switch {
	case at < 0 || at >= 1<<53 || ttl < -2 || ttl >= 1<<53 || bytes < 0 || size < 0:
		return nil, errReply
	case ttl == -2:
		return nil, nil
	case size > 0 && len(value) == 0:
		return nil, fmt.Errorf("redisstore: a value of %d bytes or parts is more than any of this store", size)
	}
	state := &State{At: time.UnixMicro(at), TTL: time.Duration(-1), Bytes: bytes, algorithm: algorithm}
	if ttl >= 0 {
		state.TTL = micros(ttl * 1000)
	}
	var err error
	switch algorithm {
	case driver.SlidingLog, driver.SlidingBuckets:
		state.Log, err = readLog(value)
	case driver.SortedSetLog:
		var parts [][2]string
		if parts, err = pairs(value); err != nil {
			return nil, err
		}
		state.Log, err = readSet(parts)
	default:
		state.Counted, err = readWindows(algorithm, value)
	}
	if err != nil {
		return nil, err
	}
	return state, nil
}

// Look returns the answer of a peek at the instant of the state, under a policy of the same algorithm. Unlike a peek, it
// never writes after a clock that went back.
func (s *State) Look(policy *driver.Policy) driver.Answer {
	limits := policy.Limits
	out := make([]driver.Status, len(limits))
	now := s.At.UnixMicro()
	var refusals uint64
	if s.algorithm == driver.GCRA {
		for i := range limits {
			out[i] = s.owed(&limits[i], now)
		}
	} else {
		refusals = s.charged(limits).Look(now, 0, limits, out)
	}
	return driver.NewAnswer(now, refusals, out)
}

// charged returns the algorithm's state after the same charges.
func (s *State) charged(limits []driver.Limit) window.State {
	switch s.algorithm {
	case driver.SlidingCounter:
		counter := &window.Counter{}
		for i := range limits {
			if c := s.counted(&limits[i]); c != nil {
				counter.Charge(c.Start.UnixMicro()-limits[i].Window, c.Previous, limits[i:i+1])
				counter.Charge(c.Start.UnixMicro(), c.Count, limits[i:i+1])
			}
		}
		return counter
	case driver.FixedWindow:
		fixed := &window.Fixed{}
		for i := range limits {
			if c := s.counted(&limits[i]); c != nil {
				fixed.Charge(c.Start.UnixMicro(), c.Count, limits[i:i+1])
			}
		}
		return fixed
	}
	log := &window.Log{Resolution: 1}
	all := []driver.Limit{{Units: 1, Window: 1 << 60}} // every entry counts
	entries := s.Log.Entries
	if n := len(entries); s.Log.written == 0 && n > 0 && entries[n-1].At.After(s.At) { // drop what had left before the clock went back
		for len(entries) > 0 && !entries[0].At.After(entries[n-1].At.Add(-s.Log.Keep)) {
			entries = entries[1:]
			n--
		}
	}
	for _, e := range entries {
		if at := e.At.UnixMicro(); s.Log.written > 0 && at > s.Log.written {
			log.ChargeAt(s.Log.written, at, e.Units, all)
		} else {
			log.Charge(at, e.Units, all)
		}
	}
	return log
}

// counted returns the state of a limit's window, or nil.
func (s *State) counted(l *driver.Limit) *Counted {
	id := windowID(l)
	for i := range s.Counted {
		if s.Counted[i].ID == id {
			return &s.Counted[i]
		}
	}
	return nil
}
