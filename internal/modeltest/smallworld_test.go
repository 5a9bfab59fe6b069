package modeltest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// In the small world a log merges at 16 entries, blocks have 4, an entry holds less than 400 units, and sums are modulo
// 4,000. So chance meets what takes months of traffic elsewhere.
var small = smallSteps.But(threshold.Table{
	"MOST_ENTRIES": smallEntries, "MERGE_STEPS": 4, "MOST_OF_ENTRY": mostOfEntry, "SET_ENTRIES": 12,
	"SUM_MODULUS": 4000, "MOST_SUM": 801,
	"SET_MODULUS": 2500, "SET_MOST_SUM": 500, "SET_LATER": 6,
})

// smallSteps are thresholds of the way that a call takes, which do not show in its answer.
var smallSteps = threshold.Scripts.But(threshold.Table{
	"BLOCK": 4, "LOOK_NEAR": 1, "WALK_NEAR": 1, "WALK_FAR": 3,
	"MOST_PACKED": 3, "SMALL_RING": 8, "SET_OLD": 3, "SET_TRIM": 2,
})

// In the large world entries and limits are the largest that there are, and the sums of a set near those that Lua no longer adds.
var large = small.But(threshold.Table{
	"MOST_OF_ENTRY": driver.MaxUnits, "SUM_MODULUS": 1 << 44, "MOST_SUM": 1<<41 + 1,
	"SET_MODULUS": threshold.Scripts["SET_MODULUS"], "SET_MOST_SUM": threshold.Scripts["SET_MOST_SUM"],
})

const (
	smallEntries = 16
	mostOfEntry  = 399
)

// virtualSmall is virtual in the small world.
func virtualSmall(t testing.TB, addr string, edit func(name, text string) string) (*redisstore.Store, *judge.Clock, *scripter) {
	store, clock, scripts := virtual(t, addr, edit)
	scripts.thresholds = small
	return store, clock, scripts
}

// times is how much longer than in CI the walks go on.
var times = flag.Int("small.times", 1, "how many times as many walks in the small world")

// exacts are the algorithms with a log.
var exacts = []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets, sash.SortedSetLog}

// A million calls in memory, which meet everything that a log does seldom: it is full, few bookings may lie ahead, and the clock
// goes back.
func TestMemoryInTheSmallWorld(t *testing.T) {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Entries, threshold.Log.Steps = smallEntries, 4
	threshold.Log.Ahead, threshold.Log.Walk, threshold.Log.Gaps = 4, 3, 3
	met := make(map[string]int)
	for _, a := range exacts {
		for seed := range uint64(400 * *times) {
			clock := judge.NewClock(start)
			threshold.Log.Units = []int64{mostOfEntry, mostOfEntry, driver.MaxUnits}[seed%3]
			store := memstore.New(&memstore.Options{Now: clock.Now, MaxBytes: 1 << 20})
			if err := newSmallWalk(store, clock, seed, a, threshold.Log.Units, true, met).run(700); err != nil {
				t.Fatalf("%v, walk %d: %v", a, seed, err)
			}
		}
	}
	t.Log(met)
	for _, event := range []string{
		"a call was booked", "a booking filled a gap", "a call was refused", "a call went ahead of bookings", "the clock went back", "a log was full", "a charge was settled",
		"a charge was settled that had left", "a reward came when all had left",
	} {
		if met[event] < 1000 {
			t.Errorf("%d times %s", met[event], event)
		}
	}
}

// A hundred thousand calls on Redis, which take every path of the scripts that few calls take.
func TestRedisInTheSmallWorld(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range exacts {
		t.Run(a.String(), func(t *testing.T) {
			for seed := range uint64(85 * *times) {
				table, edit := small, counted(t)
				if seed%5 == 4 {
					table, edit = large, nil
				}
				if err := walkRedis(t, server.Addr(), seed, a, table, edit); err != nil {
					t.Fatalf("walk %d: %v", seed, err)
				}
			}
		})
	}
	checkPaths(t, server)
}

// walkRedis makes the walk of a seed on Redis.
func walkRedis(
	t testing.TB, addr string, seed uint64, a sash.Algorithm, table threshold.Table, edit func(name, text string) string,
) error {
	begin := replaced(t, large, "zset.lua", "last_sum, last_units = 0, 0 end", "last_sum, last_units = SET_MODULUS - MOST_OF_ENTRY, 0 end")
	store, clock, scripts := virtual(t, addr, func(name, text string) string {
		if edit != nil {
			text = edit(name, text)
		}
		if table["MOST_OF_ENTRY"] == driver.MaxUnits {
			text = begin(name, text)
		}
		return text
	})
	scripts.thresholds = table
	return newSmallWalk(store, clock, seed, a, table["MOST_OF_ENTRY"], false, make(map[string]int)).run(400)
}

// replaced returns an edit that replaces one text of a script, with the names of its thresholds.
func replaced(t testing.TB, table threshold.Table, script, is, becomes string) func(name, text string) string {
	is, becomes = table.Put(is), table.Put(becomes)
	return func(name, text string) string {
		if name != script {
			return text
		}
		if n := strings.Count(text, is); n != 1 {
			t.Fatalf("%s has the text %q %d times", name, is, n)
		}
		return strings.Replace(text, is, becomes, 1)
	}
}

// Chance finds in the small world what it does not find in the large one.
func TestTheSmallWorldCatches(t *testing.T) {
	server := redistest.Start(t)
	for _, m := range []struct {
		table          threshold.Table
		script         string
		algorithm      sash.Algorithm
		name, old, new string
	}{
		{large, "log_settle.lua", sash.SlidingLog, "a settlement overflows an entry",
			"saturated = math.min(units + becomes - cost, MOST_OF_ENTRY)", "saturated = units + becomes - cost"},
		{large, "zset.lua", sash.SortedSetLog, "a sum has 14 digits",
			"member, score = string.format('%.0f:%.0f', sum, units_now)", "member, score = sum .. ':' .. units_now"},
		{small, "log.lua", sash.SlidingLog, "what is merged is forgotten", "units = units + u\n", "units = units\n"},
		{small, "log.lua", sash.SlidingLog, "a full log drops its oldest entry",
			"if slots < MOST_ENTRIES then return true,", "if slots >= MOST_ENTRIES then return false, oldest, true end\n    if slots < MOST_ENTRIES then return true,"},
		{small, "log.lua", sash.SlidingLog, "hints outlive what is merged",
			"void, inserted, full = void or gone,", "void, inserted, full = void,"},
		{small, "log.lua", sash.SlidingLog, "hints of other limits outlive what is merged", "anew and limits or hinted) end", "limits) end"},
		{small, "log.lua", sash.SlidingLog, "the sums wrap",
			"% SUM_MODULUS > MOST_SUM then\n          log = log", "< 0 then\n          log = log"},
		{small, "log.lua", sash.SlidingLog, "what fills the sums is forgotten",
			"pack('>I5', math.min(units, MOST_OF_ENTRY))) end", "pack('>I5', 1)) end"},
		{small, "log.lua", sash.SlidingLog, "hints outlive what fills the sums",
			"steps(open).saturate(log, key, slots, entries, head, total, oldest), true",
			"steps(open).saturate(log, key, slots, entries, head, total, oldest), false"},
		{small, "log.lua", sash.SlidingBuckets, "a full entry takes more into the total", "added = entry_units - there", ""},
		{small, "log_settle.lua", sash.SlidingLog, "a full entry gives back", "units >= MOST_OF_ENTRY or units", "units"},
		{small, "log_settle.lua", sash.SlidingBuckets, "a charge that a clock has moved is taken for another",
			"local sure, bookings = at > moved % 2^52,", "local sure, bookings = true,"},
		{small, "log_settle.lua", sash.SlidingLog, "a charge that has left is settled", "if now >= ends then return '' end", ""},
		{small, "log_reward.lua", sash.SlidingLog, "units come back that have left",
			"local begin = log.search(oldest, head, cut)", "local begin = oldest"},
		{small, "zset.lua", sash.SortedSetLog, "a full set drops its oldest member", "math.min(units + more, MOST_OF_ENTRY)", "more"},
		{small, "zset.lua", sash.SortedSetLog, "what many units follow is forgotten",
			"if units > 0 then\n      call('ZREM'", "if false then\n      call('ZREM'"},
		{small, "zset.lua", sash.SortedSetLog, "a full member gives back", "(units >= MOST_OF_ENTRY or ", "("},
	} {
		t.Run(m.script+"/"+m.name, func(t *testing.T) {
			server.Must(t, "FLUSHALL")
			for seed := range uint64(300) {
				err := walkRedis(t, server.Addr(), seed, m.algorithm, m.table, replaced(t, m.table, m.script, m.old, m.new))
				if err != nil {
					what, _, _ := strings.Cut(err.Error(), "\n")
					t.Log(seed, what)
					return
				}
			}
			t.Error("nothing was found wrong with it")
		})
	}
}

// Bookings, IDs, settlements and calls on several subjects under limits of the calendar answer by the definition, also where few
// bookings may lie ahead and, on Redis, the clock trembles. So do blocks.
func TestTheCalendarInTheSmallWorld(t *testing.T) {
	walk := func(store driver.Store, clock *judge.Clock, a sash.Algorithm, seed uint64, little bool) error {
		return randomCalls(setup{
			store: store, clock: clock, algorithm: a, usual: bookings, limits: calendarPlans, little: little, steps: 80,
			prefix: fmt.Sprintf("calendar %d:", walks.Add(1)), choose: rand.New(rand.NewPCG(seed, 37)).IntN,
			block: calendarBlocks[seed%4],
		})
	}
	server := redistest.Start(t)
	onRedis := func(a sash.Algorithm, seed uint64, edit func(name, text string) string) error {
		store, clock, scripts := virtual(t, server.Addr(), edit)
		scripts.thresholds = smallSteps
		return walk(store, clock, a, seed, seed%3 == 0)
	}
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets} {
		for seed := range uint64(40 * *times) {
			if err := onRedis(a, seed, nil); err != nil {
				t.Fatalf("%v on Redis, walk %d: %v", a, seed, err)
			}
		}
	}
	for _, m := range []struct{ script, is, becomes string }{
		{"log_once.lua", "if ends > clock[1] * 1000000 + clock[2] then", "if ends > 0 then"},
		{"log_book.lua", "if ahead.now then return book(ahead.now) end", ""},
		{"block_log.lua", "if blocked or not asks or repeats", "if not asks or repeats"},
		{"log_settle.lua", "or one_period() or", "or"},
	} {
		found := false
		for seed := uint64(0); !found && seed < 60; seed++ {
			found = onRedis(sash.SlidingLog, seed, replaced(t, small, m.script, m.is, m.becomes)) != nil
		}
		if !found {
			t.Errorf("nothing was found wrong with %s without %q", m.script, m.is)
		}
	}
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Ahead, threshold.Log.Walk = 6, 3
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets} {
		for seed := range uint64(100 * *times) {
			clock := judge.NewClock(start)
			if err := walk(memstore.New(&memstore.Options{Now: clock.Now}), clock, a, seed, false); err != nil {
				t.Fatalf("%v in memory, walk %d: %v", a, seed, err)
			}
		}
	}
}

// calendarBlocks are the blocks of walks under limits of the calendar: half of them have none.
var calendarBlocks = [4]sash.Block{
	1: {Refusals: 3, Window: 10 * time.Second, For: 40 * time.Minute}, 3: {Refusals: 2, Window: 2 * time.Hour, For: time.Minute},
}

// However many charges are settled upwards, the sums do not wrap: a log that holds too much is full.
func TestSettlementsDoNotWrapTheSums(t *testing.T) {
	server := redistest.Start(t)
	if left := settledToTheModulus(t, server.Addr(), nil); left != 0 {
		t.Errorf("%d of 40 remain after settlements of %d", left, small["SUM_MODULUS"])
	}
	broken := replaced(t, small, "log_settle.lua", "+ left - units > MOST_SUM then", "< 0 then")
	if left := settledToTheModulus(t, server.Addr(), broken); left == 0 {
		t.Error("this test cannot fail")
	}
}

// settledToTheModulus returns what remains of 40 units when charges are settled to as many as the sums count.
func settledToTheModulus(t *testing.T, addr string, edit func(name, text string) string) int64 {
	t.Helper()
	store, clock, _ := virtualSmall(t, addr, edit)
	s := newScenario(store, clock, newPolicy(t, nil, sash.Every(40, time.Minute)))
	s.oracle, s.settles = nil, true
	var charges []driver.Answer
	for left := small["SUM_MODULUS"]; left > 0; left -= mostOfEntry {
		charges = append(charges, s.call(1, 0))
		clock.Advance(time.Millisecond)
	}
	for i, charge := range charges {
		s.settle(1, charge, min(small["SUM_MODULUS"]-int64(i)*mostOfEntry, mostOfEntry), "", 1)
	}
	left := s.call(0, 0)
	if s.err != nil {
		t.Fatal(s.err)
	}
	return left.Remaining()
}

// A log that is full has joined its oldest entries. A settlement of a charge from before a reset finds nothing there.
func TestAResetEndsWhatAFullLogHolds(t *testing.T) {
	server := redistest.Start(t)
	store, clock, _ := virtualSmall(t, server.Addr(), nil)
	const units = 6 * smallEntries
	for _, becomes := range []int64{0, 5} {
		s := newScenario(store, clock, newPolicy(t, nil, sash.Every(units, time.Hour)))
		s.oracle, s.settles = nil, true
		old := s.call(2, 0)
		s.reset()
		for n := range int64(2 * smallEntries) {
			clock.Advance(time.Millisecond)
			s.call(2, 0)
			s.settle(2, old, becomes, "", 1)
			s.wantLeft(units - 2*(n+1))
		}
		if s.err != nil {
			t.Fatal(s.err)
		}
	}
}

// Whatever the thresholds are, the sums of a log have room for what two blocks add.
func TestSumsHaveRoom(t *testing.T) {
	for _, table := range []threshold.Table{threshold.Scripts, small} {
		if room := table["SUM_MODULUS"] - table["MOST_SUM"]; room < 2*table["BLOCK"]*table["MOST_OF_ENTRY"] {
			t.Errorf("there is room for %d units", room)
		}
		if table["MOST_SUM"]/2 <= table["MOST_OF_ENTRY"] {
			t.Error("what joins because the sums are full may not fill a limit")
		}
	}
}

// smallPaths are the paths of the scripts that few calls take. A path begins before a text, if a condition holds there.
var smallPaths = []struct{ script, name, text, condition string }{
	{"log.lua", "a hint is moved", "found, since = position, time", "true"},
	{"log.lua", "a hint is farther than what is looked at once", "local slot, count = position % slots, most", "most > WALK_NEAR"},
	{"log.lua", "the log is searched", "begin, before, since = log.locate(oldest, cut)", "true"},
	{"log.lua", "units leave behind the next entries", "local low, high = math.floor(position / BLOCK) + 1", "true"},
	{"log.lua", "the clock went back", "oldest, head, total = steps(open).redate(", "true"},
	{"log.lua", "a packed log is full", "hints = string.rep(pack('>I6I6I7I7', 0, 0, 2^53 - 1, 0), limits)", "true"},
	{"log.lua", "the clock of a packed log went back", "slots, hinted, entries, packed = open(key).ring(", "true"},
	{"log.lua", "the ring grows", "if grow or shrink then size = rare.larger(", "grow"},
	{"log.lua", "the ring shrinks", "if shrink then oldest = needed", "shrink"},
	{"log.lua", "a small ring is written", "-- roll returns a ring", "true"},
	{"log.lua", "a large ring is written", "local length = #header", "true"},
	{"log.lua", "a ring that grows goes round its end", "return call('GETRANGE', key, base + x * bytes, base + slots", "true"},
	{"log.lua", "the oldest entry of a full ring has left", "return false, oldest, false end", "true"},
	{"log.lua", "newer entries outweigh the oldest", "return false, oldest, true end\n    if slots", "true"},
	{"log.lua", "entries merge", "units = units + u\n", "true"},
	{"log.lua", "a ring that has merged grows", "return 2 * count end", "true"},
	{"log.lua", "an entry is full", "added = entry_units - there", "there + cost > MOST_OF_ENTRY"},
	{"log.lua", "the sums are full", "oldest, void = steps(open).saturate(", "true"},
	{"log.lua", "the sums wrap", "local hot = pack(", "total + added >= SUM_MODULUS"},
	{"log_settle.lua", "what is merged is found", "if not same then\n", "same and time_there ~= at and not shared(resolution) and not one_period()"},
	{"log_settle.lua", "a charge is not found", "local started = math.max(now, charged)", "true"},
	{"log_settle.lua", "a full entry gives nothing back", "if becomes < cost and (units >=", "becomes < cost and units >= MOST_OF_ENTRY"},
	{"log_settle.lua", "an entry is full", "if left > units then", "left == MOST_OF_ENTRY"},
	{"log_settle.lua", "the sums are full", "oldest, saturated = steps(open).saturate(", "true"},
	{"log_settle.lua", "entries at the end hold nothing", "head = head - 1", "true"},
	{"zset.lua", "the clock went back", "local before = first_sum - first_units\n", "true"},
	{"zset.lua", "more have left than a call removes", "call('ZREMRANGEBYRANK', key, '1'", "old == SET_OLD"},
	{"zset.lua", "the oldest member joins the next", "local oldest = call('ZRANGE', key, '1', '2'", "true"},
	{"zset.lua", "many units follow the oldest", "units = units + first_units end", "true"},
	{"zset.lua", "a member is full", "added = units_now - last_units", "adds > 0 and units_now == MOST_OF_ENTRY"},
	{"zset.lua", "the sums wrap", "local member, score = string.format(", "sum < last_sum"},
	{"zset.lua", "too many have followed", "if change < 0 then return end", "#later > 2 * SET_LATER"},
	{"zset.lua", "the next member is the first that counts", "if since <= cut then", "since > cut"},
	{"zset.lua", "the first that counts is searched", "local found = call(", "true"},
	{"zset.lua", "the answer is computed anew", "again = true\n      end\n    end\n", "true"},
	{"zset.lua", "a full member gives nothing back", "if not at or change < 0 and (", "at and change < 0 and units >= MOST_OF_ENTRY"},
}

// counted returns an edit that makes the scripts count their paths, in the key "paths".
func counted(t testing.TB) func(name, text string) string {
	return func(name, text string) string {
		for i, p := range smallPaths {
			if p.script != name {
				continue
			}
			at := small.Put(p.text)
			if n := strings.Count(text, at); n != 1 {
				t.Fatalf("%s has the text %q %d times: the path has to follow the script", name, at, n)
			}
			count := fmt.Sprintf("if %s then redis.call('HINCRBY', 'paths', '%d', '1') end ", small.Put(p.condition), i)
			text = strings.Replace(text, at, count+at, 1)
		}
		return text
	}
}

// checkPaths fails if one of the paths was never taken.
func checkPaths(t *testing.T, server *redistest.Server) {
	t.Helper()
	client := newClient(t, server.Addr())
	taken := must(client.HGetAll(t.Context(), "paths").Result())
	for i, p := range smallPaths {
		n := taken[strconv.Itoa(i)]
		t.Logf("%s: %s: %s times", p.script, p.name, n)
		if n == "" {
			t.Errorf("%s: it never happened that %s", p.script, p.name)
		}
	}
}
