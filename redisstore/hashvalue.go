package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
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

// pairs splits the reply of inspect.lua about a sorted set or a hash. The parts share the reply's memory.
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
	errReply  = errors.New("redisstore: inspect.lua answered something that makes no sense")
	errNoSet  = errors.New("redisstore: the value is not a sorted set of this store")
	errNoHash = errors.New("redisstore: the value is not a hash of this store")
)

// readSet reads the members and scores of a sorted-set log: see the head of script/zset.lua.
func readSet(members [][2]string) (*Log, error) {
	l := &Log{Entries: make([]Entry, 0, len(members))}
	before := int64(-1)
	for _, m := range members {
		if m[1] == "-inf" { // the register
			continue
		}
		score, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			f, err := strconv.ParseFloat(m[1], 64) // Redis writes long numbers so
			if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
				return nil, fmt.Errorf("%w: the score %.40q", errNoSet, m[1])
			}
			score = int64(f)
		}
		switch m[0] {
		case "keep":
			l.Keep = micros(-score)
			continue
		case "units":
			l.KeepUnits = -score
			continue
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
	if l.Keep < 0 || l.KeepUnits < 0 {
		return nil, fmt.Errorf("%w: what it keeps is negative", errNoSet)
	}
	return l, nil
}

// readHash reads the fields of the algorithms that keep a hash: see the heads of their scripts.
func readHash(fields [][2]string) ([]Counted, error) {
	byID := make(map[string]*Counted)
	for _, f := range fields {
		if f[0] == "register" {
			continue
		}
		id, name, _ := strings.Cut(f[0], ":")
		number, err := strconv.ParseFloat(f[1], 64)
		wrong := fmt.Errorf("%w: the field %.40q is %.40q", errNoHash, f[0], f[1])
		if err != nil || !(number >= 0 && number <= 1<<53) {
			return nil, wrong
		}
		c := byID[id]
		if c == nil {
			c = &Counted{ID: id}
			if !strings.HasPrefix(id, "c") {
				window, err := strconv.ParseInt(id, 10, 64)
				if err != nil || window <= 0 {
					return nil, wrong
				}
				c.Window = micros(window)
			}
			byID[id] = c
		}
		n := int64(number)
		switch name {
		case "start":
			c.Start = time.UnixMicro(n)
		case "count", "current":
			c.Count = n
		case "previous":
			c.Previous = n
		case "at":
			c.At = time.UnixMicro(n)
		case "debt":
			c.Debt = time.Duration(math.Min(number*1e3, math.MaxInt64/2))
		default:
			return nil, wrong
		}
	}
	all := make([]Counted, 0, len(byID))
	for _, c := range byID {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Counted) int {
		return cmp.Or(cmp.Compare(a.Window, b.Window), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}
