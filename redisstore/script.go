package redisstore

import (
	"crypto/sha1" // as EVALSHA does
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
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
	log       = load("log_search.lua", "log_grow.lua", "log_ahead.lua", "log_now.lua", "log.lua")
	logBook   = around(load("log.lua"), "log_book.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_book.lua")
	logOnce   = around(clocked(logBook), "log_once.lua", "register.lua", "log_search.lua", "log_once.lua")
	logSettle = load("register.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_settle.lua")
	logExtend = extender()
	logEach   = around(logBook, "log_each.lua", "log_each.lua")
	logMany   = around(load("log.lua"), "log_many.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_many.lua")

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

// A set is the scripts of an algorithm. The one that decides may also be the one that decides with an ID or settles, by the
// mode or the end of its argument.
type set struct{ decide, once, settle, take, reward, choose *Script }

// uniform returns the set of an algorithm with one script, and those that are made of it.
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

// shared returns the script of an algorithm that decides by shared.lua, named after the last file. What the first file has
// from a mark on, and the next one from its mark on, stands where the same mark is; what comes before is put at the front.
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

// around returns the script of some files, the last of which makes the decision of another script where it says DECIDE.
func around(script *Script, name string, files ...string) *Script {
	source := strings.Replace(load(files...).source, "-- DECIDE\n", script.source, 1)
	return NewScript(name, source).With(threshold.Scripts)
}

// blockers returns the scripts that block.lua makes of those that can refuse, by them.
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

// extender returns the script that settles and decides at one time.
func extender() *Script {
	source := strings.Replace(load("log_extend.lua").source, "-- SETTLE\n", clocked(logSettle).source, 1)
	return NewScript("log_extend.lua", strings.Replace(source, "-- DECIDE\n", clocked(log).source, 1)).With(threshold.Scripts)
}

// clocked returns a script that takes the time from the one around it.
func clocked(script *Script) *Script {
	return NewScript(script.Name, strings.Replace(script.source, "call('TIME')", "clock", 1))
}

// compact reports whether an algorithm keeps the compact log, which has scripts of its own for settlements and IDs.
func compact(a driver.Algorithm) bool { return a == driver.SlidingLog || a == driver.SlidingBuckets }

// Scripts returns every script of the store, so that a program can load them ahead of time.
func Scripts() []*Script {
	all := []*Script{logBook, logEach, logMany, logExtend, coolDown, heldSpend, heldBring, reset, instances}
	for _, of := range sets {
		all = append(all, of.decide, of.once, of.settle, of.take, of.reward, of.choose)
	}
	all = slices.AppendSeq(all, maps.Values(blocking))
	slices.SortFunc(all, func(a, b *Script) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(all)
}
