package modeltest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

// smallPaths are the paths of the scripts that few calls take. A path begins before a text, if a condition holds there.
var smallPaths = []struct{ script, name, text, condition string }{
	{"log.lua", "a hint is moved", "found, since = position, time", "true"},
	{"log.lua", "a hint is farther than what is looked at once", "local slot, count = position % slots, most", "most > WALK_NEAR"},
	{"log.lua", "the log is searched", "begin, before, since = log.locate(oldest, cut)", "true"},
	{"log.lua", "units leave behind the next entries", "local low, high = math.floor(position / BLOCK) + 1", "true"},
	{"log.lua", "the clock went back", "oldest, head, total = steps().redate(", "true"},
	{"log.lua", "the ring grows", "if grow then size = rare.larger(slots, keep_units) elseif", "grow"},
	{"log.lua", "a small ring is written", "-- roll returns a ring", "true"},
	{"log.lua", "a large ring is written", "local length = #header", "true"},
	{"log.lua", "a ring that grows goes round its end", "return call('GETRANGE', key, base + x * bytes, base + slots", "true"},
	{"log.lua", "the oldest entry of a full ring has left", "return false, false end", "true"},
	{"log.lua", "newer entries outweigh the oldest", "return false, true end\n    if slots", "true"},
	{"log.lua", "the oldest entry joins the next", "offset = entries + (oldest + 1) % slots", "true"},
	{"log.lua", "an entry is full", "added = entry_units - there", "there + cost > MOST_OF_ENTRY"},
	{"log.lua", "the sums are full", "oldest, void = steps().saturate(", "true"},
	{"log.lua", "the sums wrap", "local hot = pack(", "total + added >= SUM_MODULUS"},
	{"log_settle.lua", "what has joined is found", "if position == head or not joined", "joined and read(position) > at"},
	{"log_settle.lua", "a charge is not found", "if becomes < cost then return '' end\n  if", "true"},
	{"log_settle.lua", "a full entry gives nothing back", "if becomes < cost and (units >=", "becomes < cost and units >= MOST_OF_ENTRY"},
	{"log_settle.lua", "an entry is full", "if left > units then", "left == MOST_OF_ENTRY"},
	{"log_settle.lua", "the sums are full", "oldest, saturated = steps().saturate(", "true"},
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
	client := newClient(server.Addr())
	defer client.Close()
	taken, err := client.HGetAll(t.Context(), "paths").Result()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range smallPaths {
		n := taken[strconv.Itoa(i)]
		t.Logf("%s: %s: %s times", p.script, p.name, n)
		if n == "" {
			t.Errorf("%s: it never happened that %s", p.script, p.name)
		}
	}
}
