package redisstore

import (
	"errors"
	"fmt"
	"time"
)

// An Entry is the units that were charged at one instant, or for sliding buckets within one step of the resolution, at
// the latest of their instants.
type Entry struct {
	At    time.Time
	Units int64
}

// A Log is the log of a subject, compact or as a sorted set.
type Log struct {
	// Entries are the charges, the oldest first. Some may no longer count. Entries that were given back entirely are
	// left out.
	Entries []Entry
	// Keep is the longest window that the log was ever used with: no older entry counts. For calendar limits it is a
	// little more than the longest period. KeepUnits is the most units that the log was ever used with, perhaps of
	// another limit.
	Keep      time.Duration
	KeepUnits int64
	// MaySettle says that a charge was or may still be settled. It is set only for the compact log.
	MaySettle bool
	// Slots is the number of entries that the compact log has room for before it grows.
	Slots int64

	written int64 // when the last charge was made, if bookings may lie ahead of it
}

// The layout of the compact log, as the head of script/log.lua has it.
const (
	logVersion  = 2
	aheadLog    = 3 // of a log with bookings, whose last hint is that of the present
	headerBytes = 51
	hintBytes   = 26
	entryBytes  = 12
	sumBytes    = 6
	block       = 64 // entries a sum
	mostHints   = 127
	mostSlots   = 1 << 20 // more than any log has
	mostIDs     = 1 << 16 // more than any log has
	idBytes     = 16
)

// mostLogBytes is longer than any value of a log.
const mostLogBytes = headerBytes + mostHints*hintBytes + mostSlots*entryBytes + (mostSlots/block+1)*sumBytes +
	mostIDs*idBytes

var errNoLog = errors.New("redisstore: the value is not a log of this version")

// readLog reads the value of a compact log. Its memory is bounded by the size of the value.
func readLog(value []byte) (*Log, error) {
	if len(value) < headerBytes || value[0] != logVersion && value[0] != aheadLog {
		return nil, errNoLog
	}
	b := value[1:]
	next := func(size int) int64 {
		var n int64
		for _, digit := range b[:size] {
			n = n<<8 | int64(digit)
		}
		b = b[size:]
		return n
	}
	hints := next(1)
	l := &Log{MaySettle: hints > mostHints}
	hints &= mostHints
	l.Slots = next(4)
	first, keep := next(6), next(7)
	l.KeepUnits = next(6)
	next(7) // when the expiry was last set; the TTL says it
	head, _, last := next(6), next(6), next(7)
	l.Keep = micros(keep)

	entries := headerBytes + hints*hintBytes
	if l.Slots == 0 || l.Slots > mostSlots || int64(len(value)) < entries+l.Slots*entryBytes || head < first {
		return nil, fmt.Errorf("%w: its header says %d slots, and the value has %d bytes", errNoLog, l.Slots, len(value))
	}
	if value[0] == aheadLog && hints > 0 {
		b = value[entries-14:]
		l.written = next(7) - 1<<52
	}
	ring := value[entries : entries+l.Slots*entryBytes]
	from := max(first, head-l.Slots)
	l.Entries = make([]Entry, 0, head-from)
	before := int64(-1)
	for p := from; p < head; p++ {
		b = ring[p%l.Slots*entryBytes:]
		at, units := next(7), next(5)
		if at <= before || at > last {
			return nil, fmt.Errorf("%w: its entries are not in the order of their times", errNoLog)
		}
		before = at
		if units > 0 {
			l.Entries = append(l.Entries, Entry{time.UnixMicro(at), units})
		}
	}
	return l, nil
}

// micros returns n microseconds, or the longest duration.
func micros(n int64) time.Duration {
	const most = 1<<63 - 1
	if n > most/int64(time.Microsecond) {
		return most
	}
	return time.Duration(n) * time.Microsecond
}
