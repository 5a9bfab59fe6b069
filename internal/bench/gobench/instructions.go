package gobench

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/coalesce"
	"example.com/sash/denials"
	"example.com/sash/driver"
	"example.com/sash/internal/bench/instructions"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

//go:embed instructions.md
var instructionsPage string

// Decider is the first argument of a program that is to call [DecideHot], for [Instructions].
const Decider = "decide-hot"

// A hot path is a decision that asks no server.
type hotPath struct {
	name  string
	store func() driver.Store
	limit sash.Limit
	keys  int
}

func hotPaths() []hotPath {
	inMemory := func() driver.Store { return memstore.New(nil) }
	room, full := sash.PerHour(sash.MaxEntries), sash.PerHour(10)
	return []hotPath{
		{"memstore, admitted, one key", inMemory, room, 1},
		{"memstore, admitted, 1,000 keys", inMemory, room, 1000},
		{"memstore, refused", inMemory, full, 1},
		{"denial cache, refused", func() driver.Store { return must(denials.New(inMemory(), nil)) }, full, 1},
		{"lease, admitted from memory", func() driver.Store { return must(lease.New(inMemory(), time.Minute)) }, room, 1},
		{"coalesce over memstore, one caller", func() driver.Store { return coalesce.New(inMemory()) }, room, 1},
	}
}

// HotPaths returns the names of the rows.
func HotPaths() []string {
	var names []string
	for _, path := range hotPaths() {
		names = append(names, path.name)
	}
	return names
}

// DecideHot makes decisions: the arguments are the number of a path and how many.
func DecideHot(args []string) error {
	var at, calls int
	if _, err := fmt.Sscan(args[0], &at); err != nil {
		return err
	}
	if _, err := fmt.Sscan(args[1], &calls); err != nil {
		return err
	}
	path := hotPaths()[at]
	limiter := must(sash.New(path.store(), nil, path.limit))
	keys := make([]string, path.keys)
	for i := range keys {
		keys[i] = load.Key(i)
	}
	for i := range calls {
		res, err := limiter.Allow(context.Background(), keys[i%len(keys)])
		if err != nil || res.Allowed != (i < int(path.limit.Units)*len(keys)) {
			return fmt.Errorf("gobench: %s: call %d was admitted: %t, %v", path.name, i, res.Allowed, err)
		}
	}
	return nil
}

// Instructions counts the instructions of a decision in this process: those of a run of many less those of a run of few.
func Instructions(r *report.Report) error {
	table := instructions.NewTable()
	for i, path := range hotPaths() {
		r.Say("instructions: %s", path.name)
		const few, many = 5000, 25_000
		var counts [2]float64
		for k, n := range []int{few, many} {
			var err error
			if counts[k], err = instructions.Program(Decider, strconv.Itoa(i), strconv.Itoa(n)); err != nil {
				return err
			}
		}
		table.Row(path.name, fmt.Sprintf("%.0f", (counts[1]-counts[0])/(many-few)))
	}
	return r.Add(instructionsPage, map[string]any{"Hot": table})
}
