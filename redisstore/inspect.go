package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"example.com/sash/driver"
)

// A State is the contents of a key of a Store at one instant, for debugging one subject.
type State struct {
	// Key is the name of the key on Redis.
	Key string
	// At is the server's clock.
	At time.Time
	// TTL is the time until the key expires. It is negative for a key without an expiry; scripts of the store leave none.
	TTL time.Duration
	// Bytes is the memory of the key on the server; zero if the user may not run MEMORY USAGE.
	Bytes int64
	// Entries are the charges of a compact log, the oldest first. Some may no longer count. Entries
	// that were given back entirely are left out. Other algorithms have none.
	Entries []Entry
}

// An Entry is the units that were charged at one instant. For sliding buckets it is the units charged within one step of the
// resolution, at the latest of their instants.
type Entry struct {
	At    time.Time
	Units int64
}

const inspectReply = 32 // bytes before the value

// Inspect returns the contents of a subject's key under a policy's algorithm and resolution, or nil if there is no key. It only reads, and
// its work is proportional to the log. It needs the rights of a decision, and MEMORY USAGE for Bytes. A value that is no log is an error.
func (s *Store) Inspect(ctx context.Context, key string, policy *driver.Policy) (*State, error) {
	name, form := s.Key(key, policy), "string 0"
	switch {
	case compact(policy.Algorithm):
		form = "string " + strconv.Itoa(mostLogBytes)
	case policy.Algorithm == driver.SortedSetLog:
		form = "zset 0"
	}
	reply, err := s.send(ctx, inspect, []string{name}, form)
	if err != nil {
		return nil, err
	}
	state, err := readState(policy.Algorithm, []byte(reply))
	if err != nil {
		return nil, fmt.Errorf("%w: the key %.200s", err, name)
	}
	if state != nil {
		state.Key = name
	}
	return state, nil
}

// readState reads the reply of inspect.lua. Its memory is bounded by the size of the reply.
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
		return nil, fmt.Errorf("redisstore: a value of %d bytes is more than any of this store", size)
	}
	state := &State{At: time.UnixMicro(at), TTL: -1, Bytes: bytes}
	if ttl >= 0 {
		state.TTL = time.Duration(min(ttl, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	if compact(algorithm) {
		var err error
		if state.Entries, err = readLog(value); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// The layout of the compact log, as the head of script/log.lua has it.
const (
	logVersion   = 2
	aheadLog     = 3 // of a log with bookings
	packedLog    = 4
	packedBytes  = 21 // before the entries; 6 follow several of them
	headerBytes  = 51
	hintBytes    = 26
	entryBytes   = 12
	mostHints    = 127
	mostSlots    = 1 << 20  // more than any log has
	mostLogBytes = 16 << 20 // more than any log has: room for so many slots, sums and IDs
)

var (
	errReply = errors.New("redisstore: inspect.lua answered something that makes no sense")
	errNoLog = errors.New("redisstore: the value is not a log of this version")
)

// bigEndian returns the number of a few bytes.
func bigEndian[T string | []byte](b T) (n int64) {
	for i := range len(b) {
		n = n<<8 | int64(b[i])
	}
	return n
}

func readLog(value []byte) ([]Entry, error) {
	var begin int
	var first, head, last, slots int64
	switch {
	case len(value) >= packedBytes+entryBytes && (len(value) == packedBytes+entryBytes || len(value)%entryBytes == 3) && value[0] == packedLog:
		slots = int64(len(value)-packedBytes) / entryBytes
		begin, head, last = packedBytes, slots, bigEndian(value[9+slots*entryBytes:][:7])
	case len(value) >= headerBytes && (value[0] == logVersion || value[0] == aheadLog):
		slots, begin = bigEndian(value[2:6]), headerBytes+int(value[1])&mostHints*hintBytes
		first, head, last = bigEndian(value[6:12]), bigEndian(value[32:38]), bigEndian(value[44:51])
	default:
		return nil, errNoLog
	}
	if slots == 0 || slots > mostSlots || int64(len(value)) < int64(begin)+slots*entryBytes || head < first {
		return nil, fmt.Errorf("%w: its header says %d slots, and the value has %d bytes", errNoLog, slots, len(value))
	}
	from := max(first, head-slots)
	entries, before := make([]Entry, 0, head-from), int64(-1)
	for p := from; p < head; p++ {
		e := value[begin+int(p%slots)*entryBytes:]
		at, units := bigEndian(e[:7]), bigEndian(e[7:entryBytes])
		if at <= before || at > last {
			return nil, fmt.Errorf("%w: its entries are not in the order of their times", errNoLog)
		}
		before = at
		if units > 0 {
			entries = append(entries, Entry{time.UnixMicro(at), units})
		}
	}
	return entries, nil
}
