// Package threshold names the numbers at which the scripts and the stores change their behaviour: a log is full, sums wrap,
// an entry holds no more. Tests would hardly reach such large numbers. So they run the same code with small ones, which they
// reach within a few calls.
package threshold

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash/driver"
)

// A Table has the value of each name in the scripts. A name becomes a literal when a script is loaded: looking a number
// up in Lua would cost more than what is done with it.
type Table map[string]int64

// Scripts are the thresholds of the scripts of package redisstore.
var Scripts = Table{
	"MOST_OF_ENTRY": driver.MaxUnits, // units in one entry of a log, compact or as a sorted set

	// The compact log.
	"MOST_ENTRIES": int64(Log.Entries), // a power of two
	"MERGE_STEPS":  Log.Steps,
	"SUM_MODULUS":  1 << 48,   // of sums
	"MOST_SUM":     1<<47 - 1, // units in all entries together, beyond which the oldest join
	"BLOCK":        64,        // entries a sum
	"LOOK_NEAR":    8,         // entries that are looked at before the sums are
	"WALK_NEAR":    8,         // entries that a hint is moved past at once
	"WALK_FAR":     64,        // the most entries that a hint is moved past
	"MOST_PACKED":  32,        // entries of a log that is one packed string
	"PACKED_BYTES": 411,       // 27 + 12 * MOST_PACKED, as a text: what is read of it at once
	"SMALL_RING":   128,       // the most slots of a ring that is written as one string
	"MOST_AHEAD":   int64(Log.Ahead),
	"STEP_BACK":    Log.Step,
	"WALK_AHEAD":   int64(Log.Walk), // with the charges that leave meanwhile
	"WALK_GAPS":    int64(Log.Gaps),
	"WALK_LOGS":    int64(Log.Logs),
	"GIVE_ENTRIES": 1000, // entries that a reward looks at

	// The log as a sorted set.
	"SET_ENTRIES":  100_000,
	"SET_MODULUS":  1 << 52, // of sums
	"SET_MOST_SUM": 1 << 50, // units that may follow the oldest member
	"SET_LATER":    1000,    // later members that a settlement changes
	"SET_GIVE":     1000,    // members that a reward looks at
	"SET_OLD":      500,     // old members that a call removes
	"SET_TRIM":     100,     // members that a call removes since enough units follow

	// IDs of calls and settlements that a subject remembers: powers of two.
	"BUCKET":   32,         // places that one ID can have
	"LOG_IDS":  int64(IDs), // places in the compact log
	"HASH_IDS": 1 << 10,    // places in a hash or a sorted set

	"MAX_LEASES": int64(Leases),   // of a key
	"MOST_UNITS": driver.MaxUnits, // of the demand of a key

	"CHOICE_GROUP": driver.ChoiceGroup, // subjects that a choice compares at once

	"REPEAT_MS": int64(driver.RepeatTime / time.Millisecond), // that a call with an ID can be repeated
}

// Log are the thresholds of the logs in memory. Scripts begin with the same ones. Tests set it while nothing else runs.
var Log = struct {
	Entries int   // of a log: from then on it merges; a power of two
	Steps   int64 // of a window, in which charges share an entry once the log merges
	Units   int64 // in one entry
	Ahead   int   // entries of a log that are bookings for later than now
	Walk    int   // bookings that a call going ahead of them looks at, for each limit
	Gaps    int   // instants that a booking looks at to find a gap, where charges are made or leave
	Logs    int   // instants that a decision over several subjects tries to find one with room for all
	Step    int64 // microseconds by which a clock may tremble: after a longer step back, charges are dated anew
}{8192, 1024, driver.MaxUnits, 10_000, 1024, 256, 16, 1000}

// IDs is the most IDs of calls and settlements that a subject in memory remembers. Tests set it while nothing else runs.
var IDs = 1 << 14

// Leases is the most leases of a key in memory. Tests set it while nothing else runs.
var Leases = 4

// Put returns a text with literals in place of the names.
func (t Table) Put(text string) string {
	names := slices.Collect(maps.Keys(t))
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) }) // a name may begin like a longer one
	pairs := make([]string, 0, 2*len(t))
	for _, name := range names {
		pairs = append(pairs, name, strconv.FormatInt(t[name], 10))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// But returns the table with other values for some names. It panics if there is no such name.
func (t Table) But(other Table) Table {
	all := maps.Clone(t)
	for name, value := range other {
		if _, ok := t[name]; !ok {
			panic("threshold: there is no " + name)
		}
		all[name] = value
	}
	return all
}
