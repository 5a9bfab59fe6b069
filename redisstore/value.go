package redisstore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash/driver"
)

// A Counted is the state of one window under an algorithm without a log.
type Counted struct {
	// Window is the length of a sliding window. It is zero for a calendar window, which ID identifies: a number
	// derived from its name.
	Window time.Duration
	ID     string
	// Start is when the current window began, and Count the units charged since: fixed window and sliding counter.
	Start time.Time
	Count int64
	// Previous is the units of the previous window of a sliding counter.
	Previous int64
	// At is the last charge, and Debt the debt then, as time at the limit's rate: GCRA. A debt of the whole window is
	// all units.
	At   time.Time
	Debt time.Duration
}

// pairs splits the reply of inspect.lua about a sorted set. The parts share the reply's memory.
func pairs(b []byte) ([][2]string, error) {
	var all [][2]string
	var first string
	for n := 0; len(b) > 0; n++ {
		if len(b) < 4 {
			return nil, errReply
		}
		length := int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3])
		if length > int64(len(b)-4) {
			return nil, errReply
		}
		text := string(b[4 : 4+length])
		b = b[4+length:]
		if n%2 == 1 {
			all = append(all, [2]string{first, text})
			continue
		}
		if first = text; len(b) == 0 {
			return nil, errReply
		}
	}
	return all, nil
}

var (
	errReply     = errors.New("redisstore: inspect.lua answered something that makes no sense")
	errNoSet     = errors.New("redisstore: the value is not a sorted set of this store")
	errNoWindows = errors.New("redisstore: the value is not one of windows of this version")
)

// setHead is the least bytes of the first member of a sorted-set log.
const setHead = 34

// bigEndian returns the number of a few bytes.
func bigEndian[T string | []byte](b T) int64 {
	var n int64
	for i := range len(b) {
		n = n<<8 | int64(b[i])
	}
	return n
}

// readSet reads the members and scores of a sorted-set log: see the head of script/zset.lua.
func readSet(members [][2]string) (*Log, error) {
	l := &Log{Entries: make([]Entry, 0, len(members))}
	before := int64(-1)
	if len(members) == 0 || members[0][1] != "-inf" || len(members[0][0]) < setHead {
		return nil, fmt.Errorf("%w: its first member is not a head", errNoSet)
	}
	head := members[0][0]
	l.Keep, l.KeepUnits = micros(bigEndian(head[:7])), bigEndian(head[7:13])
	for _, m := range members[1:] {
		score, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			f, err := strconv.ParseFloat(m[1], 64) // Redis writes long numbers so
			if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
				return nil, fmt.Errorf("%w: the score %.40q", errNoSet, m[1])
			}
			score = int64(f)
		}
		_, text, ok := strings.Cut(m[0], ":")
		units, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || units < 0 || units > 1<<52 || score <= before {
			return nil, fmt.Errorf("%w: the member %.40q at %.40q", errNoSet, m[0], m[1])
		}
		before = score
		if units > 0 {
			l.Entries = append(l.Entries, Entry{time.UnixMicro(score), units})
		}
	}
	return l, nil
}

// The layout of the windows, as the head of script/windows.lua has it.
const (
	windowsVersion   = 1
	windowsHead      = 9
	windowBytes      = 30
	registerBytes    = 14
	calendarName     = 1 << 52 // added to the identity of a calendar limit
	mostWindowsBytes = windowsHead + 255*windowBytes + registerBytes + mostIDs*idBytes
)

// readWindows reads the value of an algorithm that keeps numbers for each window.
func readWindows(algorithm driver.Algorithm, value []byte) ([]Counted, error) {
	if len(value) < windowsHead || value[0] != windowsVersion || len(value) < windowsHead+int(value[1])*windowBytes+registerBytes {
		return nil, errNoWindows
	}
	all := make([]Counted, value[1])
	for i := range all {
		b := value[windowsHead+i*windowBytes:]
		name, at := bigEndian(b[:7]), bigEndian(b[7:14])
		x, y := math.Float64frombits(binary.BigEndian.Uint64(b[14:])), math.Float64frombits(binary.BigEndian.Uint64(b[22:]))
		const most = 1 << 53
		if name == 0 || name >= most || at >= most || !(x >= 0 && x <= most) || !(y >= 0 && y <= most) {
			return nil, errNoWindows
		}
		c := &all[i]
		if algorithm == driver.GCRA {
			c.At, c.Debt = time.UnixMicro(at), time.Duration(math.Min(x*1e3, math.MaxInt64/2))
		} else {
			c.Start, c.Count, c.Previous = time.UnixMicro(at), int64(x), int64(y)
		}
		c.ID = strconv.FormatInt(name, 10)
		if name >= calendarName {
			c.ID = "c" + strconv.FormatInt(name-calendarName, 10)
		} else {
			c.Window = micros(name)
		}
	}
	slices.SortFunc(all, func(a, b Counted) int {
		return cmp.Or(cmp.Compare(a.Window, b.Window), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}
