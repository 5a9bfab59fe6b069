package redisstore

import (
	"crypto/sha1" // as EVALSHA does
	"embed"
	"encoding/hex"
	"fmt"
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
	logSettle = load("register.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_settle.lua")
	logReward = around(log, "log_reward.lua", "log_search.lua", "log_reward.lua")
	logBook   = around(load("log.lua"), "log_book.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_book.lua")
	logOnce   = around(logBook, "log_once.lua", "register.lua", "log_once.lua")
	logEach   = around(logBook, "log_each.lua", "log_each.lua")
	logMany   = around(load("log.lua"), "log_many.lua", "log_search.lua", "log_grow.lua", "log_ahead.lua", "log_many.lua")

	scripts = [...]*Script{
		driver.SlidingLog:     log,
		driver.SortedSetLog:   shared("zset.lua"),
		driver.SlidingBuckets: log,
		driver.SlidingCounter: shared("windows.lua", "counter.lua"),
		driver.FixedWindow:    shared("windows.lua", "fixed.lua"),
		driver.GCRA:           shared("windows.lua", "gcra.lua"),
	}
	anyLog = choose(logBook)
	anyOf  = [...]*Script{
		driver.SlidingLog:     anyLog,
		driver.SortedSetLog:   choose(scripts[driver.SortedSetLog]),
		driver.SlidingBuckets: anyLog,
		driver.SlidingCounter: choose(scripts[driver.SlidingCounter]),
		driver.FixedWindow:    choose(scripts[driver.FixedWindow]),
		driver.GCRA:           choose(scripts[driver.GCRA]),
	}
	taking = [...]*Script{
		driver.SlidingLog:     taker(driver.SlidingLog),
		driver.SortedSetLog:   taker(driver.SortedSetLog),
		driver.SlidingBuckets: taker(driver.SlidingBuckets),
		driver.SlidingCounter: taker(driver.SlidingCounter),
		driver.FixedWindow:    taker(driver.FixedWindow),
		driver.GCRA:           taker(driver.GCRA),
	}
	blocking  = blockers()
	reset     = load("reset.lua")
	instances = load("instances.lua")
	inspect   = load("inspect.lua") // not one of Scripts: it needs other rights
)

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
	for _, script := range slices.Concat(scripts[:], taking[:], []*Script{logOnce}) {
		all[script] = around(script, "block_"+script.Name, "block.lua")
	}
	return all
}

// taker returns the script that take.lua makes of the decision of an algorithm.
func taker(a driver.Algorithm) *Script {
	return around(scripts[a], "take_"+scripts[a].Name, "take.lua")
}

// choose returns the script that makes a decision on whichever of several subjects has most room, by any.lua.
func choose(script *Script) *Script { return around(script, "any_"+script.Name, "any.lua") }

// compact reports whether an algorithm keeps the compact log, which has scripts of its own for settlements and IDs.
func compact(a driver.Algorithm) bool { return a == driver.SlidingLog || a == driver.SlidingBuckets }

// Scripts returns every script of the store, so that a program can load them ahead of time.
func Scripts() []*Script {
	return []*Script{
		log, logBook, logEach, logMany, logSettle, logOnce, logReward, scripts[driver.SortedSetLog], scripts[driver.SlidingCounter], scripts[driver.FixedWindow],
		scripts[driver.GCRA], anyLog, anyOf[driver.SortedSetLog], anyOf[driver.SlidingCounter], anyOf[driver.FixedWindow],
		anyOf[driver.GCRA], taking[driver.SlidingLog], taking[driver.SortedSetLog], taking[driver.SlidingCounter],
		taking[driver.FixedWindow], taking[driver.GCRA], reset, instances, heldSpend, heldBring, coolDown, logExtend,
		blocking[log], blocking[logOnce], blocking[scripts[driver.SortedSetLog]], blocking[scripts[driver.SlidingCounter]],
		blocking[scripts[driver.FixedWindow]], blocking[scripts[driver.GCRA]], blocking[taking[driver.SlidingLog]],
		blocking[taking[driver.SortedSetLog]], blocking[taking[driver.SlidingCounter]], blocking[taking[driver.FixedWindow]],
		blocking[taking[driver.GCRA]],
	}
}
