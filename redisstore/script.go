package redisstore

import (
	"crypto/sha1" // as EVALSHA does
	"embed"
	"encoding/hex"
	"fmt"
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
	log       = load("log_search.lua", "log_grow.lua", "log.lua")
	logSettle = load("log_search.lua", "log_grow.lua", "log_settle.lua")
	logOnce   = once(log)
	zset      = load("shared.lua", "zset.lua")

	scripts = [...]*Script{
		driver.SlidingLog:     log,
		driver.SortedSetLog:   zset,
		driver.SlidingBuckets: log,
		driver.SlidingCounter: load("shared.lua", "counter.lua"),
		driver.FixedWindow:    load("shared.lua", "fixed.lua"),
		driver.GCRA:           load("shared.lua", "gcra.lua"),
	}
	settles = [len(scripts)]*Script{
		driver.SlidingLog:     logSettle,
		driver.SlidingBuckets: logSettle,
	}
	onces = [len(scripts)]*Script{
		driver.SlidingLog:     logOnce,
		driver.SortedSetLog:   once(zset),
		driver.SlidingBuckets: logOnce,
		driver.SlidingCounter: once(scripts[driver.SlidingCounter]),
		driver.FixedWindow:    once(scripts[driver.FixedWindow]),
		driver.GCRA:           once(scripts[driver.GCRA]),
	}
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

// once returns a script that runs another one once for each ID, by once.lua.
func once(script *Script) *Script {
	source := strings.Replace(load("once.lua").source, "-- DECIDE\n", script.source, 1)
	return NewScript(strings.TrimSuffix(script.Name, ".lua")+"_once.lua", source).With(threshold.Scripts)
}

// Scripts returns every script of the store, so that a program can load them ahead of time.
func Scripts() []*Script {
	all := []*Script{log, zset, scripts[driver.SlidingCounter], scripts[driver.FixedWindow], scripts[driver.GCRA], logSettle, reset, instances, coolDown}
	return append(all, logOnce, onces[driver.SortedSetLog], onces[driver.SlidingCounter], onces[driver.FixedWindow], onces[driver.GCRA])
}
