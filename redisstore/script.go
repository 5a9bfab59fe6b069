package redisstore

import (
	"crypto/sha1" // as EVALSHA does
	"embed"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

// A Script is a Lua script for Redis. It is immutable.
type Script struct {
	Name string // such as "log.lua"
	Text string
	SHA1 string // of Text, in lower-case hexadecimal, for EVALSHA

	source string // Text with the names of its thresholds
}

// NewScript returns a script with its hash. Tests use it to run modified scripts.
func NewScript(name, text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Name: name, Text: text, SHA1: hex.EncodeToString(sum[:]), source: text}
}

// With returns the script with other thresholds. The tests of this repository make them small.
func (s *Script) With(table threshold.Table) *Script {
	other := NewScript(s.Name, table.Put(s.source))
	other.source = s.source
	return other
}

//go:embed script/*.lua
var files embed.FS

var (
	log          = load("log_search.lua", "log_grow.lua", "log_ahead.lua", "log_now.lua", "log.lua")
	logBook      = around(load("log.lua"), "log_book.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_book.lua")
	logOnce      = around(clocked(logBook), "log_once.lua", "register.lua", "log_search.lua", "log_once.lua")
	logSettle    = load("register.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_settle.lua")
	logExtend    = load("log_extend.lua").put("SETTLE", clocked(logSettle)).put("DECIDE", clocked(log))
	logSettleAll = load("log_settle_all.lua").put("SETTLE", clocked(logSettle))
	logEach      = around(logBook, "log_each.lua", "log_each.lua")
	logMany      = around(load("log.lua"), "log_many.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_many.lua")

	compactLog = set{
		decide: log, once: logOnce, settle: logSettle, take: taker(log), choose: choose(logBook),
		reward: around(log, "log_reward.lua", "log_search.lua", "log_reward.lua"),
	}
	sets = [...]set{
		driver.SlidingLog:     compactLog,
		driver.SortedSetLog:   uniform(shared("zset.lua")),
		driver.SlidingBuckets: compactLog,
		driver.SlidingCounter: uniform(shared("windows.lua", "counter.lua")),
		driver.FixedWindow:    uniform(shared("windows.lua", "fixed.lua")),
		driver.GCRA:           uniform(shared("windows.lua", "gcra.lua")),
	}
	blocking = blockers()

	coolDown  = load("cooldown.lua")
	heldSpend = load("held_spend.lua")
	heldBring = load("held_bring.lua")
	reset     = load("reset.lua")
	instances = load("instances.lua")
	inspect   = load("inspect.lua") // not one of Scripts: it needs other rights
)

// A set is the scripts of an algorithm. The script that decides may also decide with an ID or settle, depending on the mode
// or the end of its argument.
type set struct{ decide, once, settle, take, reward, choose *Script }

// uniform returns the set of an algorithm with one script and the scripts made of it.
func uniform(script *Script) set {
	take := taker(script)
	return set{decide: script, once: script, settle: script, take: take, reward: take, choose: choose(script)}
}

// load joins embedded files into one script, named after the last.
func load(names ...string) *Script {
	text := ""
	for _, name := range names {
		b, err := files.ReadFile("script/" + name)
		if err != nil {
			panic(fmt.Sprintf("redisstore: %s is not embedded: %v", name, err)) // cannot happen in a build
		}
		text += string(b)
	}
	return NewScript(names[len(names)-1], text).With(threshold.Scripts)
}

// shared returns the script of an algorithm that decides by shared.lua, named after the last file. Each file has a mark: the
// text behind it replaces the same mark in the script, and the text before it goes to the front.
func shared(names ...string) *Script {
	source := load("shared.lua").source
	put := func(mark, text string) { source = strings.Replace(source, mark, text, 1) }
	_, limit, _ := strings.Cut(load("limit.lua").source, "-- LIMIT\n")
	functions, rest, _ := strings.Cut(load(names[0]).source, "-- REGISTER\n")
	register, subject, _ := strings.Cut(rest, "-- SUBJECT\n")
	put("-- REGISTER\n", load("register.lua").source+register)
	put("-- SUBJECT\n", subject)
	put("-- LIMIT\n", limit)
	for _, name := range names[1:] {
		before, count, _ := strings.Cut(load(name).source, "-- COUNT\n")
		functions += before
		put("-- COUNT\n", count)
	}
	return NewScript(names[len(names)-1], functions+source).With(threshold.Scripts)
}

// around returns the script of some files. In the last of them, the decision of another script stands where it says DECIDE.
func around(script *Script, name string, files ...string) *Script {
	return NewScript(name, load(files...).put("DECIDE", script).source).With(threshold.Scripts)
}

func (s *Script) put(mark string, other *Script) *Script {
	return NewScript(s.Name, strings.Replace(s.source, "-- "+mark+"\n", other.source, 1)).With(threshold.Scripts)
}

// blockers returns, for each script that can refuse, the script that block.lua makes of it.
func blockers() map[*Script]*Script {
	all := make(map[*Script]*Script)
	for _, of := range sets {
		for _, script := range []*Script{of.decide, of.once, of.take} {
			if all[script] == nil {
				all[script] = around(script, "block_"+script.Name, "block.lua")
			}
		}
	}
	return all
}

// taker returns the script that take.lua makes of a decision.
func taker(script *Script) *Script { return around(script, "take_"+script.Name, "take.lua") }

// choose returns the script that makes a decision on whichever of several subjects has most room, by any.lua.
func choose(script *Script) *Script { return around(script, "any_"+script.Name, "any.lua") }

// clocked returns a script that takes the time from the script around it.
func clocked(script *Script) *Script {
	return NewScript(script.Name, strings.Replace(script.source, "call('TIME')", "clock", 1))
}

// compact reports whether an algorithm keeps the compact log, which has scripts of its own for settlements and IDs.
func compact(a driver.Algorithm) bool { return a == driver.SlidingLog || a == driver.SlidingBuckets }

// Scripts returns every script of the store, so that a program can load them ahead of time.
func Scripts() []*Script {
	all := []*Script{logBook, logEach, logMany, logExtend, logSettleAll, coolDown, heldSpend, heldBring, reset, instances}
	for _, of := range sets {
		all = append(all, of.decide, of.once, of.settle, of.take, of.reward, of.choose)
	}
	all = slices.AppendSeq(all, maps.Values(blocking))
	slices.SortFunc(all, func(a, b *Script) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(all)
}

// The modes of a script: the first byte of its argument.
const (
	modeDecide = 0
	modeCharge = 1 // decide, and charge refused calls too
	modeSettle = 2
	modeLater  = 3 // decide; the charge may be settled later
)

// The orders of take.lua: the last byte of its argument.
const (
	takeFitting = "\x01" // charge as many units as fit
	takeForced  = "\x02" // charge whether or not there is room
	takeBack    = "\x03" // give units back
)

const usualSize = 64 // enough bytes for a decision on one subject without calendar limits

// pack writes the argument of a decision: see the head of script/log.lua for its form.
func pack(ops []driver.Op, countRefused bool, now int64) string {
	var usual [usualSize]byte // on the stack
	mode := modeDecide
	if countRefused {
		mode = modeCharge
	}
	for i := range ops {
		if ops[i].MaySettle && !countRefused {
			mode = modeLater
		}
	}
	b := appendUint(usual[:0], 1, int64(mode), 7, max(1, ops[0].Policy.Resolution.Microseconds()))
	for i := range ops {
		b = appendRequest(b, &ops[i].Request, now)
	}
	return string(b)
}

// bookable returns how far ahead charges that are decided together may be booked. It is zero if all only look or none can be booked.
func bookable(ops []driver.Op) int64 {
	if !charges(ops) || !ops[0].Policy.Bookable() {
		return 0
	}
	within := ops[0].Within
	for i := range ops[1:] {
		within = min(within, ops[i+1].Within)
	}
	return within
}

// packBooking writes the end of the argument of a decision that may be booked: how far ahead, and from which instant on.
func packBooking(within, from int64) string {
	var b [12]byte
	return string(appendUint(b[:0], 5, within, 7, from))
}

// packSettlement writes the argument of a settlement: the argument of the decision, when it was made, the instant of the
// charge, its units, the instant from which settling does nothing, and the settlement's name.
func packSettlement(set *driver.Settlement) string {
	var usual [usualSize]byte
	b := appendUint(usual[:0], 1, modeSettle, 7, max(1, set.Policy.Resolution.Microseconds()))
	b = appendRequest(b, &set.Request, set.At)
	b = appendUint(b, 7, set.At-set.Delay, 7, set.At, 5, set.Units, 7, set.Expires())
	var name window.Name
	if set.ID != "" {
		name = window.SettlementName(set.ID)
	}
	return string(append(b, name[:]...))
}

func appendRequest(b []byte, req *driver.Request, now int64) []byte {
	windows := req.Policy.Limits
	b = appendUint(b, 5, req.Cost, 1, int64(len(windows)))
	for i := range windows {
		l := &windows[i]
		b = appendUint(b, 5, l.Units, 7, l.Window)
		if l.Period == 0 {
			continue
		}
		b = appendUint(b, 7, l.Length(), 4, calendarID(l))
		b1, b2 := l.Bounds(now)
		b0, _ := l.Bounds(b1 - 1)
		_, b3 := l.Bounds(b2)
		for _, bound := range [...]int64{b0, b1, b2, b3} {
			b = appendUint(b, 7, max(1, bound)) // on a clock near 1970, the instant before a bound is then not negative
		}
	}
	return b
}

func calendarID(l *driver.Limit) int64 {
	return int64(crc32.ChecksumIEEE([]byte(l.Period.String() + "@" + l.Zone.String())))
}

// calendarNow returns this process's time if any limit needs it.
func calendarNow(ops []driver.Op) int64 {
	for i := range ops {
		for _, l := range ops[i].Policy.Limits {
			if l.Period != 0 {
				return time.Now().UnixMicro()
			}
		}
	}
	return 0
}

// appendUint appends numbers, each given behind its size in bytes.
func appendUint(b []byte, fields ...int64) []byte {
	for ; len(fields) > 1; fields = fields[2:] {
		for shift := 8 * (fields[0] - 1); shift >= 0; shift -= 8 {
			b = append(b, byte(fields[1]>>shift))
		}
	}
	return b
}

// slot returns the Redis Cluster slot of a key: CRC-16/XMODEM of its hash tag, or of all of it, modulo
// 16384 (Redis Cluster specification, "Key distribution model").
func slot(key string) uint16 {
	key = hashTag(key)
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc & 16383
}

// hashTag returns the part of a key that decides its slot: what is in its first braces, or all of it.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
