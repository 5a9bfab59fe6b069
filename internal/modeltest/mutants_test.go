package modeltest

import (
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
	"example.com/sash/redistest"
)

// A mutant is one of the scripts with one plausible mistake. Its texts have the names of thresholds.
type mutant struct {
	name     string
	old, new string // the text, which is in the script exactly once, and what is there instead
}

// mutants are the broken variants of each script, with the algorithm that is judged on it.
var mutants = []struct {
	script    string
	algorithm sash.Algorithm
	mutants   []mutant
}{
	{"log.lua", sash.SlidingLog, []mutant{
		{"writes before it decides",
			"if oldest < first then oldest = first end",
			"if oldest < first then oldest = first end if header ~= '' then call('SETRANGE', key, '6', pack('>I6', oldest)) end"},
		{"an entry at the edge still counts", "        cut = now - window\n", "        cut = now - window - 1\n"},
		{"an entry leaves a microsecond early", "        cut = now - window\n", "        cut = now - window + 1\n"},
		{"the time has no microseconds", "time[1] * 1000000 + time[2]", "time[1] * 1000000"},
		{"the expiry is in seconds, rounded down",
			"clock, 0), 'PX', lives)", "clock, 0), 'EX', math.max(1, math.floor(keep / 1000000)))"},
		{"no expiry", "clock, 0), 'PX', lives)", "clock, 0))"},
		{"the expiry is never moved", "if expires < now + keep or keep ~= old_keep or", "if keep ~= old_keep or"},
		{"the second window is not checked", "if cost > remaining then", "if cost > remaining and limit == 1 then"},
		{"a refusal is charged",
			"local writes = charges and (room or charge_refused)", "local writes = charges"},
		{"one subject of two is charged",
			"if pass == 'look' and (refusals == 0 or charge_refused) and not looks then", "if pass == 'look' and not looks then"},
		{"a hint is believed without a check",
			"if as_of > cut or begin < oldest or begin >= head then", "if begin < oldest or begin >= head then"},
		{"the ring overwrites what counts", "full and needed <= oldest, nil", "full and needed <= oldest and slots < 16, nil"},
		{"the longest window is forgotten", "if window > keep then keep = window end", "keep = window"},
		{"the sums of blocks are not written",
			"if begins then\n          local block", "if false then\n          local block"},
		{"growing loses what wrapped around", "if x < y then return", "if true then return"},
		{"a ring that grows keeps its old entries in their old slots", "local skip = position % slots * bytes", "local skip = 0"},
		{"retry looks at the oldest entry", "if answers and not stop and cost - remaining > 1 then", "if false then"},
		{"retry stops at the next block",
			"position, stop = math.max(position, (low - 1) * BLOCK)", "position, stop = math.max(position, low * BLOCK)"},
		{"a clock that goes back locks out", "if now < last and head > oldest then", "if false then"},
		{"a clock that goes back forgets",
			"entries + position % slots * 12, pack('>I7I5', now, units)", "entries + position % slots * 12, pack('>I7I5', now, 0)"},
		{"the key goes before the ID when the log grows", "value, lives = cold .. hot, math.ceil((expires - clock) / 1000)", "value, lives = cold .. hot, math.ceil(2 * keep / 1000)"},
		{"IDs are lost when the ring grows", "header .. ring .. sums .. register", "header .. ring .. sums .. string.sub(register, 1, 14)"},
		{"the register is lost when the ring grows", "header .. ring .. sums .. register", "header .. ring .. sums"},
		{"a charge to be settled is forgotten when it is written", "if mode == 3 and marked == 0 then", "if false then"},
		{"a charge to be settled is forgotten when the ring grows", "limits + marked, size", "limits + (mode == 3 and 128 or 0), size"},
		{"a charge to be settled is forgotten when the log is made", "if mode == 3 then marked = 128 end\n        expires", "expires"},
		{"refusals are always firm", "refusals + settleable, now", "refusals, now"},
		{"the period before is taken for this one", "if now < b1 then cut, stop = b0 - 1, b1", "if now < b1 then cut, stop = b1 - 1, b2"},
	}},
	{"log.lua", sash.SlidingBuckets, []mutant{
		{"calls join across midnight", "then joins = false end", "then joins = true end"},
		{"calls of one step do not join", "resolution > 1 and", "resolution < 1 and"},
		{"what joins is not added", "math.min(there + cost, MOST_OF_ENTRY)", "there"},
	}},
	{"log_settle.lua", sash.SlidingLog, []mutant{
		{"the total stays", "(total + change) % SUM_MODULUS", "total"},
		{"the sums of blocks stay", "pack('>I6', (sum + change) % SUM_MODULUS)", "pack('>I6', sum)"},
		{"the hints stay", "if not saturated and (hint < position or hint == position and left > 0) then", "if true then"},
		{"the hint at an entry that holds nothing stays", "hint < position or hint == position and left > 0", "hint <= position"},
		{"a repetition is applied again", "if ids.find(id) > now or", "if"},
		{"its ID is not written down", "  ids.put(id, ends, 0, now)\n", ""},
		{"another ID is found", "find(str, id, at + 1, true)", "find(str, '', at + 1, true)"},
		{"a reset is forgotten", "if decided < born then return '' end", ""},
		{"it takes from another call", "if becomes < cost then return '' end", ""},
		{"more is lost when the charge was moved", "if becomes < cost then return '' end", "if true then return '' end"},
		{"more is not charged", "local left, saturated = math.min(units + becomes - cost, MOST_OF_ENTRY)", "local left, saturated = math.min(units + math.min(becomes, cost) - cost, MOST_OF_ENTRY)"},
		{"the entry stays", "pack('>I5', left))", "pack('>I5', units))"},
		{"what holds nothing stays last", "if left == 0 and position == head - 1 then", "if false then"},
	}},
	{"log_reward.lua", sash.SlidingLog, []mutant{
		{"the total stays", "total = less(total)", "total = less(total) + given"},
		{"the sums of blocks stay", "pack('>I6', less(unpack('>I6', call('GETRANGE', key, offset, offset + 5))))", "call('GETRANGE', key, offset, offset + 5)"},
		{"the sums between the entries take it all", "math.min((sum - before) % SUM_MODULUS, given)", "given"},
		{"a hint after the entries keeps its sum", "pack('>I6I6', hint, less(sum))", "pack('>I6I6', hint, sum)"},
		{"a hint at the entries stays", "if hint < begin then", "if hint < position then"},
		{"it begins with the oldest", "local begin = log.search(oldest, head, cut)", "local begin = oldest"},
		{"the narrowest limit counts", "  cut = math.min(cut, from)\n", "  cut = math.max(cut == now and 0 or cut, from)\n"},
		{"it takes one unit of each", "local takes = math.min(there, units - given)", "local takes = math.min(there, units - given, 1)"},
		{"more than there is", "return reply .. pack('>I8', given)", "return reply .. pack('>I8', units)"},
		{"what holds nothing stays last", "if position == head then\n  oldest", "if false then\n  oldest"},
		{"a second chunk is not taken", "position = position + i\n", "position = stop\n"},
		{"the last answer is that of before", "then reply = after end", "then end"},
	}},
	{"block_log.lua", sash.SlidingLog, []mutant{
		{"one refusal too many", "if n < most then", "if n <= most then"},
		{"one refusal too few", "if n < most then", "if n < most - 1 then"},
		{"all refusals count", "if time > now - window then", "if true then"},
		{"a refusal at the edge counts", "if time > now - window then", "if time >= now - window then"},
		{"refusals count on after a block", "times, ends, remains = '', now + length, length", "ends, remains = now + length, length"},
		{"a block refuses nothing", "if blocked or not asks or repeats", "if not asks or repeats"},
		{"a blocked call charges", "ARGV[1] = look\n", "ARGV[1] = request\n"},
		{"a clock that goes back prolongs it", "if ends > now + lasts then", "if false then"},
		{"a clock that goes back is not written down", "    write(s, ends, lasts, '', lasts)\n", ""},
		{"no expiry", "times, 'PX',\n    string.format('%.0f', math.ceil(lives / 1000) + 1))", "times)"},
		{"the key goes early", "math.max(remains, window)", "window / 2"},
		{"the block of the first subject counts", "redis.pcall('SET', all[subjects + s]", "redis.pcall('SET', all[subjects + 1]"},
		{"every subject counts", "local own, remains = bits % 2^limits[s], 0", "local own, remains = bits, 0"},
	}},
	{"block_log_once.lua", sash.SlidingLog, []mutant{
		{"a repetition is refused", "local remains = not repeats(refusals) and left(s, now) or 0", "local remains = left(s, now)"},
	}},
	{"take_log.lua", sash.SlidingLog, []mutant{
		{"all or nothing", "cost = math.min(cost, math.max(1, (unpack('>I8', reply, at))))", ""},
		{"the first limit counts", "for at = 17, #reply, 32 do", "for at = 17, 17 do"},
		{"nothing may be charged", "math.max(1, (unpack('>I8', reply, at)))", "(unpack('>I8', reply, at))"},
		{"a refusal charges too", "refusals == 0 and cost or 0", "cost"},
		{"a penalty needs room", "ask(5, cost)", "ask(0, cost)"},
		{"the answer to a penalty is that of before", "(valid and after or reply)", "reply"},
	}},
	{"take_zset.lua", sash.SortedSetLog, []mutant{
		{"longer windows still count what is given back", "if renames then new[i]", "if false then new[i]"},
		{"what is given back stays", "if units == m.units then new[i] = '' end", ""},
		{"what has left is given back", "if m.at <= cut then", "if false then"},
		{"all or nothing", "cost = math.min(cost, math.max(1, (unpack('>I8', reply, at))))", ""},
		{"a penalty needs room", "if refusals == 0 or mode == 1 or mode == 5 then", "if refusals == 0 or mode == 1 then"},
	}},
	{"take_fixed.lua", sash.FixedWindow, []mutant{
		{"more is given back than there is", "local units = math.min(subject.cost, l.count)", "local units = subject.cost"},
	}},
	{"take_gcra.lua", sash.GCRA, []mutant{
		{"a reward charges", "write(subject, -subject.cost, now)", "write(subject, subject.cost, now)"},
		{"what is given back is rounded down", "math.ceil(owed(l, 0) * l.units / l.window)", "math.floor(owed(l, 0) * l.units / l.window)"},
	}},
	{"take_counter.lua", sash.SlidingCounter, []mutant{
		{"the newest units are given back", "local before = math.min(subject.cost, l.previous)", "local before = math.min(math.max(0, subject.cost - l.current), l.previous)"},
		{"a penalty needs room", "if refusals == 0 or mode == 1 or mode == 5 then", "if refusals == 0 or mode == 1 then"},
	}},
	{"rota_log.lua", sash.SlidingLog, []mutant{
		{"nothing is given back", "local settled = settle()", "local settled = ''"},
		{"a line waits for its turn for ever", "or passed < most", ""},
		{"no line waits for its turn", "or passed < most", "or true"},
		{"a line gets no turn of its own", "mine == 1 or passed", "passed"},
		{"admissions past the first are not counted", "passed = passed + 1", ""},
		{"the count goes on for the next line", "  passed = 0\nelseif", "elseif"},
		{"the count goes on when the first line leaves", "passed = 0 -- another line is the first", ""},
		{"lines that are late keep their places", "if ends > now and ends", "if ends"},
		{"lines keep their places after a clock that went back", " and ends <= now + MAX_STAY", ""},
		{"the first line keeps its place", "(mine == 1 or more == 0)", "more == 0"},
		{"a line that is served keeps its place", "(mine == 1 or more == 0)", "mine == 1"},
		{"a line whose callers wait on leaves", "mine == 1 and more == 1", "false"},
		{"a line that was admitted joins", "local joins = not admitted or", "local joins = more == 1 or not admitted or"},
		{"a line that asks again is late all the same", "places[mine][2] = now + stays", "local _"},
		{"any number of lines wait", "joins and #places < MAX_LINES", "joins"},
		{"a refusal in turn is firm", "2^40 + 1, at", "1, at"},
		{"a refusal in turn says nothing of when", "remaining, stays, release", "remaining, 0, release"},
		{"it charges out of turn", "may and request or", "request or"},
		{"a rota has no expiry", "redis.pcall('SET', all[2], out, 'PX', string.format('%.0f', math.ceil(lives / 1000) + 1))", "call('SET', all[2], out)"},
		{"a rota without lines stays", "call('DEL', all[2])", "local _"},
	}},
	{"log_extend.lua", sash.SlidingLog, []mutant{
		{"a charge that is gone is made anew", "if settled ~= 'settled' then return settled end", ""},
		{"nothing is charged", "return decide()", "return struct.pack('>i8I8I8I8I8I8', 0, clock[1] * 1000000 + clock[2], 0, 0, 0, 0)"},
		{"nothing is given back", "local settled = settle()", "local settled = 'settled'"},
	}},
	{"log_book.lua", sash.SlidingLog, []mutant{
		{"bookings do not go behind others", "if last > s and log.cost > 0 then s = last end", ""},
		{"a booking overtakes those of other subjects", "if last > s and log.cost > 0 then s = last end", "if last > s and i == 1 then s = last end"},
		{"a booking is farther away than asked", "refusals > 0 and not crowded and s + wait - clock <= within", "refusals > 0 and not crowded"},
		{"a booking behind others is farther away than asked", "(crowded or s - clock > within)", "crowded"},
		{"one limit has room", "if retry > wait then wait = retry end", "if retry > 0 then wait = retry end"},
		{"a refusal is of all limits", "if crowded or retry > within then bits", "if true then bits"},
		{"a refusal is as of the booking", "answers = decide(clock, clock, true)", "answers = reply"},
		{"a refusal is firm", "s > clock and 2^40 or 0", "0"},
		{"the times are from the booking", "release + delay, reset + delay", "release, reset"},
		{"nothing is written down of entries ahead", "if log.cost > 0 and delay > 0 then", "if false then"},
		{"the clock went back behind plain charges", "          last = clock\n        end\n        if last", "        end\n        if last"},
		{"it writes the charge at the clock", "pack('>i8I8', 0, s) .. out", "pack('>i8I8', 0, clock) .. out"},
		{"the last entry is taken for one ahead", "log.position, log.before = head, total", "log.position, log.before = math.max(0, head - 1), total"},
		{"the present has another sum", "log.position, log.before, log.since = ahead.position, ahead.before, ahead.since", "log.position, log.since = ahead.position, ahead.since"},
		{"what booked calls need goes as of their instant", "clock - keep, log, total + cost", "now - keep, log, total + cost"},
		{"what a booking needs to begin is what others need", "and not stop and now == clock then needed", "and not stop then needed"},
		{"the expiry counts from the booking", "call('PEXPIRE', key, math.ceil((expires - clock) / 1000))", "call('PEXPIRE', key, math.ceil((expires - now) / 1000))"},
		{"the first charge is the booking's", "pack('>I7I7I7', 0, clock, 0)", "pack('>I7I7I7', 0, now, 0)"},
		{"a log that is widened goes early", "math.ceil((unpack('>I7', cold, 26) - now) / 1000)", "1"},
		{"as many entries as one likes lie ahead", "ahead.head - ahead.position >=", "ahead.head - ahead.position - 2^53 >="},
		{"a log that is marked loses its hints", "rare.widen(key, slots, 51 + 26 * hinted, head, total, oldest, cold, slots, hints, clock)\n      hinted = hints", "hinted = hinted"},
	}},
	{"log.lua", sash.SlidingLog, []mutant{
		{"bookings are taken for a clock that went back", "head > oldest and version == 3 then", "false then"},
		{"a log keeps its version when no booking lies ahead", "call('SETRANGE', key, '0', '\\2') end -- no", "local _ end -- no"},
		{"a refusal before bookings is firm", "ahead, 2^40 -- a booking", "ahead, settleable -- a booking"},
		{"a call before bookings waits for its own limit", "if_refused = steps().wait(if_refused, mask, bookings.behind - now)", "local _"},
		{"what a call before bookings leaves is not seen", "elseif inserted and refusals == 0 then", "elseif false then"},
		{"the present is where it was", "elseif since <= now then\n      position", "elseif false then\n      position"},
		{"the sum before the present is what it was", "      before = log.sum_before(position)\n      since", "      since"},
		{"a window that ends at a booking is not looked at", "remaining = math.min(remaining, fewest(units, window, begin, sum_begin) or 0)", ""},
		{"too many bookings are looked at", "if steps < 0 then return nil end", ""},
		{"a window that ends a window ahead counts", "if time >= now + window then", "if time > now + window then"},
		{"old entries stay in windows ahead", "while old and old <= time - window do", "while false do"},
		{"entries leave windows ahead late", "while old and old <= time - window do", "while old and old < time - window do"},
		{"a period counts no bookings", "log.search(position, head, stop - 1)", "position"},
		{"a period counts the bookings of the next", "log.search(position, head, stop - 1)", "head"},
		{"the wait is that until the last booking", "if fit <= left then return last end", "if true then return last end"},
		{"the wait is a window behind", "log.departure(first, sum_first, fit - left) + window", "last + window"},
		{"the entry is written behind the bookings", "rare.put(key, entry .. tail, entries, slots, 12, position)", "rare.put(key, tail .. entry, entries, slots, 12, position)"},
		{"the sums behind an inserted entry stay", "(sum + added) % SUM_MODULUS))\n      end", "sum % SUM_MODULUS))\n      end"},
		{"the sums behind an inserted entry are of other positions", "if inserts then sum = sum - ", "if false then sum = sum - "},
		{"the total stays when an entry is inserted", "pack('>I6I6I7', to, (total + added) % SUM_MODULUS, last)", "pack('>I6I6I7', to, total, last)"},
		{"other hints outlive an inserted entry", "hints .. string.rep(nothing, hinted - 1 - limits)", "hints .. call('GETRANGE', key, 51 + 26 * limits, 24 + 26 * hinted)"},
		{"the present is before an inserted entry", "pack('>I6I6I7I7', position + to - head,", "pack('>I6I6I7I7', position,"},
		{"an inserted entry is not in the sum of the present", "(before + added) % SUM_MODULUS, 2^52 + now, since", "before, 2^52 + now, since"},
		{"the last write is forgotten", "(before + added) % SUM_MODULUS, 2^52 + now, since", "(before + added) % SUM_MODULUS, 2^52, since"},
		{"a full ring does not grow for an inserted entry", "if grow then size = rare.larger(slots, keep_units) end", ""},
		{"a full ring drops an entry that counts", "if needed <= oldest then\n          local full", "if false then\n          local full"},
		{"a longer window is not remembered", "3, hinted + marked, slots, oldest, keep, keep_units, expires)\n        ..", "3, hinted + marked, slots, oldest, 0, keep_units, expires)\n        .."},
		{"a charge before bookings is not marked as one to settle", "      if mode == 3 then marked = 128 end\n      if expires", "      if expires"},
		{"the key goes before its bookings", "if expires < last + keep then expires = last + 2 * keep end", ""},
		{"bookings stay when the clock goes back", "time = time - (as_of - now)\n", "\n"},
		{"bookings become one of now when the clock goes back", "local booked = log.search(first, head, as_of)", "local booked = head"},
		{"the sums stay when bookings move", "pairs(changed)", "pairs({})"},
		{"the end of the bookings stays when they move", "head, total, last - (as_of - now))", "head, total, last)"},
		{"a ring that is widened loses its last entry", "rare.rewrite(key, slots, entries, head, total, oldest, header, size, head - 1, newest, lives)", "rare.rewrite(key, slots, entries, head, total, oldest, header, size, head - 1, string.rep('\\0', 12), lives)"},
	}},
	{"log_book.lua", sash.SlidingBuckets, []mutant{
		{"bookings of one step join", "resolution > 1 and now == clock and", "resolution > 1 and"},
	}},
	{"log_each.lua", sash.SlidingLog, []mutant{
		{"the first request counts for all", "string.sub(requests, from, from + size - 1)", "string.sub(requests, 3, 2 + size)"},
		{"it ends after the first", "if struct.unpack('>i8', reply) == -1 then break end", "if true then break end"},
	}},
	{"log_settle.lua", sash.SlidingLog, []mutant{
		{"what a booking becomes is not in the sum of the present", "if hint > position then sum = ", "if false then sum = "},
		{"what is before the end of the bookings goes with them", "charged = math.min(last, as_of - 2^52)", "charged = last"},
		{"a booking from before a reset is settled", "if decided < born then", "if at < born then"},
		{"what a clock has moved is taken from others", "if becomes < cost and bookings and not sure then return '' end", ""},
	}},
	{"held_spend.lua", sash.SlidingLog, []mutant{
		{"a clock that goes back keeps leases", "if now < since or size > 25", "if size > 25"},
		{"what another process wrote is spent", "~= sub(tostring(call), -12) then -- or", "== '' then -- or"},
		{"who asks again counts again", "local counts = again == 0", "local counts = true"},
		{"demand is not counted", "current = current + cost", "current = current"},
		{"demand is that of all time", "elseif passed >= math.floor(longest / 8) then", "elseif false then"},
		{"old demand counts", "since, past, current = now, 0, 0", "since, past, current = now, past, 0"},
		{"the demand before does not count", "now, rate(current, passed), 0", "now, 0, 0"},
		{"a part of an interval is all of it", "now, rate(current, passed), 0", "now, current, 0"},
		{"a rate has no bound", "return per > MOST_UNITS and MOST_UNITS or per", "return per"},
		{"demand that jumps is not seen", "math.max(current, rate(current, math.max(now - since, math.floor(longest / 32))))", "current"},
		{"one call is a jump", "math.max(now - since, math.floor(longest / 32))", "now - since"},
		{"demand has no bound", "if current > MOST_UNITS then", "if false then"},
		{"the demand before is the demand", "if current > past then", "if false then"},
		{"a lease is spent before it starts", "if starts > now then", "if starts > now + 1 then"},
		{"a lease is spent at its end", "elseif now < ends and left", "elseif now <= ends and left"},
		{"more is spent than is left", "and left >= cost and (not spends", "and left > 0 and (not spends"},
		{"the lease that ends last is spent", "ends < ends_first)", "ends > ends_first)"},
		{"the last lease is waited for", "starts < starts_first)", "starts > starts_first)"},
		{"a lease that has too little is waited for", "if not spends and left >= cost and", "if not spends and"},
		{"nobody knows of a lease that comes", "if starts > soon then late = true end", ""},
		{"leases that end soon are counted on", "if ends > soon then usable", "if true then usable"},
		{"the cost is counted on", "usable = usable - cost end", "usable = usable end"},
		{"a lease is fetched when one is used up", "usable * longest < 2 * way * want then", "usable == 0 then"},
		{"a small demand fetches", "if asked >= 2 * cost and not late", "if not late"},
		{"all go on an errand", "errand = busy <= now and", "errand ="},
		{"one goes although the last one failed", "down <= now and refused", "refused"},
		{"one goes although the home refuses", "and refused <= now\n", "\n"},
		{"a refusal holds for a lower cost", "if refused > now and cost >= least then", "if refused > now then"},
		{"a failure is forgotten", "elseif down > now then", "elseif false then"},
		{"nobody waits", "elseif busy > now then", "elseif false then"},
		{"the wait is a way", "math.max(began + way - now,", "math.max(way,"},
		{"the wait is too short", "math.floor(way / 8), 1000)", "math.floor(way / 8))"},
		{"nobody is alone", "elseif asked < 2 * cost then", "elseif false then"},
		{"the key goes before its demand", "lives = since + 2 * longest", "lives = since + longest"},
		{"the expiry stays", "local prolongs = expires < lives", "local prolongs = size == 0"},
		{"an errand has no end", "math.min(math.max(4 * way, 100000), longest)", "math.max(4 * way, 100000)"},
		{"an errand ends early", "math.max(4 * way, 100000)", "4 * way"},
		{"no expiry", "call('SET', key, new, 'PX', string.format('%.0f', math.ceil((expires - now) / 1000) + 1))", "call('SET', key, new)"},
		{"what is spent is left", "spends), remains))", "spends), remains + cost))"},
		{"the first lease pays", "sub(value, 26, 20 + 5 * spends)", "''"},
		{"demand is counted only if units are spent", "  elseif counts then\n", "  elseif false then\n"},
		{"an errand is not written down", "if errand then call('SETRANGE', key, '57', under_way) end", ""},
		{"what is left at home is not known", "if size > 25 then rest = unpack", "if false then rest = unpack"},
		{"the note is as old as the clock", "brought < now and now - brought or 0", "now"},
	}},
	{"held_bring.lua", sash.SlidingLog, []mutant{
		{"what another process wrote is kept", "if size > 25 and sub(value, 46, 57) ~= process then", "if false then"},
		{"every errand brings", "if from ~= 0 and (from ~= began or now < from) then", "if false then"},
		{"a clock that went back brings", "(from ~= began or now < from)", "from ~= began"},
		{"an errand does not end", "if from ~= 0 then began, busy = 0, 0 end", ""},
		{"what is left at home is lost", "rest = home", "rest = 0"},
		{"a lease starts at once", "starts = now + delay, left", "starts = now, left"},
		{"a lease lasts from when it was brought", "lease.ends = from + delay", "lease.ends = now + delay"},
		{"a lease ends without its delay", "lease.ends = from + delay + longest", "lease.ends = from + longest"},
		{"clocks run alike", " - math.floor(longest / 1024)", ""},
		{"a lease that has ended is kept", "lease.ends > lease.starts and keep", "keep"},
		{"a refusal outlives a lease", "refused, least, came, refusal, down = 0, 0, 0, '', 0\n", "down = 0\n"},
		{"a failure outlives a lease", "refusal, down = 0, 0, 0, '', 0\n", "refusal = 0, 0, 0, ''\n"},
		{"a refusal lasts from when it was brought", "(from > 0 and from or now) + refuses", "now + refuses"},
		{"a refusal of any cost", "+ refuses, cost, now, note", "+ refuses, 0, now, note"},
		{"the key goes before its refusal", "    lives = refused\n", ""},
		{"the key goes before its lease", "lives, result = lease.ends + longest, 1", "lives, result = 0, 1"},
		{"the key goes before the failure ends", "    lives = down\n", ""},
		{"a lease is returned that is used up", "if other.left > 0 and other.ends", "if other.ends"},
		{"leases stay", "and other.ends + longest > now then", "then"},
		{"leases are dropped at their end", "and other.ends + longest > now then", "and other.ends > now then"},
		{"one lease too many", "if #kept >= MAX_LEASES then", "if #kept >= MAX_LEASES + 1 then"},
		{"a lease makes room that has not ended", "if kept[first].ends > now then return false end", ""},
		{"the last lease makes room", "other.ends < kept[first].ends", "other.ends > kept[first].ends"},
		{"all is returned", "result, lease.left = result + lease.left - keep, keep", "result, lease.left = result + lease.left, 0"},
		{"what is returned is kept", "result, lease.left = result + lease.left - keep, keep", "result = result + lease.left - keep"},
		{"every lease is returned", "if lease.began == from and lease.left", "if lease.left"},
		{"no expiry", ".. out .. refusal,\n    'PX', string.format('%.0f', math.max(1, math.ceil((expires - now) / 1000) + 1)))", ".. out .. refusal)"},
	}},
	{"cooldown.lua", sash.SlidingLog, []mutant{
		{"the last cool-down always holds", "now + new > ends)", "true)"},
		{"a cool-down that ends earlier replaces", "now + new > ends", "now + new < ends"},
		{"one that has ended is not replaced", "if new > 0 and (not ends or", "if new > 0 and (not ends or ends > now and"},
		{"a clock that goes back prolongs it", "elseif ends > now + length then", "elseif false then"},
		{"a clock that goes back is not written down", "ends, write = now + length, true", "ends = now + length"},
		{"it is forgotten at its end", "if now >= ends + keep(length) then", "if now >= ends then"},
		{"a look writes", "length, guessed = false, nil", "length, guessed = true, nil"},
		{"no expiry", ", 'PX', string.format('%.0f', lives))", ")"},
		{"the key goes at its end", "(ends + keep(length) - now)", "(ends - now)"},
		{"the guess is lost", "pack('>I7I7I1', ends, length, guessed)", "pack('>I7I7I1', ends, length, 0)"},
	}},
	{"log_once.lua", sash.SlidingLog, []mutant{
		{"a log with bookings is not looked at", "string.byte(header) ~= 2 and string.byte(header) ~= 3", "string.byte(header) ~= 2"},
		{"a repetition is booked", "string.sub(request, 14, -21) .. string.rep('\\0', 12)", "string.sub(request, 14, -9)"},
		{"a repetition reports no delay", "math.max(0, at - now)", "0"},
		{"a booking is remembered from now on", "ids.put(id, at + repeats,", "ids.put(id, at - delay + repeats,"},

		{"a repetition is decided again", "if ends > 0 then\n", "if false then\n"},
		{"a repetition is charged", "string.sub(request, 1, 8) .. '\\0\\0\\0\\0\\0'", "string.sub(request, 1, 13)"},
		{"a refusal is remembered", "(refusals == 0 or refusals > 0 and string.byte(request) == 1)", "refusals >= 0"},
		{"a refusal that was charged is not remembered", "or refusals > 0 and string.byte(request) == 1)", ")"},
		{"nothing is remembered", "(refusals == 0 or refusals > 0 and", "(refusals > 0 and"},
		{"the key goes before the ID", "if expires < at + repeats then", "if false then"},
		{"it is forgotten early", "ARGV[1], 300000 * 1000", "ARGV[1], 290000 * 1000"},
		{"it is remembered for too long", "ARGV[1], 300000 * 1000", "ARGV[1], 303000 * 1000"},
		{"the refusals are lost", "struct.pack('>i8I8', refusals + 2^41", "struct.pack('>i8I8', 2^41"},
	}},
	{"log_many.lua", sash.SlidingLog, []mutant{
		{"a subject has the request of the first", "if length > 0 then ARGV[1]", "if i == 1 then ARGV[1]"},
		{"every subject is the first", "KEYS[1], at = key,", "KEYS[1], at = keys[1],"},
		{"a bad key fails all", "local ok, reply = pcall(decide, now, now, false)", "local ok, reply = true, decide(now, now, false)"},
		{"an error looks like an answer", "2^15 + #reply", "#reply"},
		{"an error within the script does not look like one", "if not ok then reply = reply .. ' script: log_many, on @user_script:0.' end", ""},
		{"bookings see another request", "local keys, requests, KEYS = KEYS, ARGV[1], {''}", "local keys, requests, KEYS, ARGV = KEYS, ARGV[1], {''}, {''}"},
		{"the time goes on", "pcall(decide, now, now, false)", "pcall(decide, now + i - 1, now + i - 1, false)"},
	}},
	{"any_log_book.lua", sash.SlidingLog, []mutant{
		{"the one with least room", "left > most)", "left < most)"},
		{"the last of several", "left > most)", "left >= most)"},
		{"the widest limit counts", "if left < least then least = left end", "if left > least or limit == 1 then least = left end"},
		{"the room before the call", "(remaining - cost) / units", "(remaining - (cost > remaining and cost or 0)) / units"},
		{"units are not shares", "(remaining - cost) / units", "(remaining - cost) / 10000000000000"},
		{"every group is looked at", "then break end\nend\n\n-- answered", "then end\nend\n\n-- answered"},
		{"the first group decides", "if best and i % 8 == 0 then break end", "if i % 8 == 0 then break end"},
		{"the first refuses", "since[i] < when or", "false and"},
		{"all that may refuse are tried for real", "looking = sub(request, 1, 8) .. '\\0\\0\\0\\0\\0' .. sub(request, 14)", "looking = request"},
	}},
	{"zset.lua", sash.SortedSetLog, []mutant{
		{"a repeated call is decided again", "if ends > now then\n", "if false then\n"},
		{"a call is not remembered", "if charged and id ~= '' then", "if false then"},
		{"the key goes before the ID", "expire(KEYS[1], 300000 * 1000)", ""},
	}},
	{"zset.lua", sash.SortedSetLog, []mutant{
		{"the timestamp is the member",
			"local member = name(sum, units)", "local member = int(now)"},
		{"the time is concatenated as a number", "call('ZADD', key, int(now), member)\n  if last and", "call('ZADD', key, '' .. now, member)\n  if last and"},
		{"it trims first",
			"local key = subject.key\n  local last", "local key = subject.key\n  call('ZREMRANGEBYSCORE', key, '0', int(now - subject.keep))\n  local last"},
		{"an entry at the edge still counts", "instant - l.window), instant", "instant - l.window - 1), instant"},
		{"the expiry is in seconds, rounded down",
			"call('PEXPIRE', key, int(ms))", "call('EXPIRE', key, int(math.floor(ms / 1000)))"},
		{"no expiry", "call('PEXPIRE', key, int(ms))", "local _ = 0"},
		{"the second window is not checked", "if refused then refusals", "if refused and bit == 1 then refusals"},
		{"a refusal is charged", "if refusals == 0 or mode == 1 or mode == 5 then", "if true then"},
		{"the longest window is forgotten",
			"math.max(subject.keep, -(tonumber(call('ZSCORE', key, 'keep') or 0)))", "subject.keep"},
		{"retry looks at the oldest entry", "units > l.first.units and departure(l, units) or l.first.at", "l.first.at"},
		{"a clock that goes back locks out", "if last and last.at > now then", "if false then"},
	}},
	{"zset.lua", sash.SortedSetLog, []mutant{
		{"a repetition is applied again", "if ids.find(id) > now or", "if"},
		{"a reset is forgotten", "if instant < born then return '' end", ""},
		{"one settles at a time", "for i = 1, #later, 2 do call('ZREM', key, later[i]) end\n  for i = 1, #later, 2 do\n",
			"for i = 1, #later, 2 do\n    call('ZREM', key, later[i])\n"},
		{"the sums stay", "(m.sum + change) % SET_MODULUS", "m.sum"},
		{"it takes from another call", "    if change < 0 then return end\n", ""},
	}},
	{"fixed.lua", sash.FixedWindow, []mutant{
		{"the window never ends", "if start >= l.start then l.count", "if true then l.count"},
		{"a clock that goes back forgets", "if start >= l.start then l.count", "if start == l.start then l.count"},
		{"the key goes early", "lives = math.max(lives, l.stop - now)", "lives = math.max(lives, (l.stop - now) / 2)"},
		{"the second window is not checked", "if refused then refusals", "if refused and bit == 1 then refusals"},
	}},
	{"counter.lua", sash.SlidingCounter, []mutant{
		{"one unit too many", "n + cost > l.units", "n + cost > l.units + 1"},
		{"the bucket before is forgotten", "l.previous = current\n", "l.previous = 0\n"},
		{"the key goes with its bucket", "l.start + 2 * l.window - now)", "l.start + l.window - now)"},
		{"a refusal is charged", "if refusals == 0 or mode == 1 or mode == 5 then", "if true then"},
	}},
	{"gcra.lua", sash.GCRA, []mutant{
		{"the debt is kept to six digits", "'%.17g'", "'%.6g'"},
		{"a clock that goes back locks out", "if now < l.at then", "if false then"},
		{"a late call pays nothing", "l.at, l.debt = tonumber(state[1]), tonumber(state[2])", "l.at, l.debt = now, tonumber(state[2])"},
	}},
}

func TestTheJudgeAcceptsTheScripts(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			if err := newBench(t, server.Addr(), a, nil).judge(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEveryMutantIsCaught(t *testing.T) {
	server := redistest.Start(t)
	texts := make(map[string]string)
	for _, s := range redisstore.Scripts() {
		texts[s.Name] = s.Text
	}
	n := 0
	for _, group := range mutants {
		for _, m := range group.mutants {
			if n++; n%mutantStep != 0 {
				continue
			}
			m.old, m.new = threshold.Scripts.Put(m.old), threshold.Scripts.Put(m.new)
			t.Run(group.script+"/"+group.algorithm.String()+"/"+m.name, func(t *testing.T) {
				if n := strings.Count(texts[group.script], m.old); n != 1 {
					t.Fatalf("the script has the text %q %d times: the mutant has to follow the script", m.old, n)
				}
				b := newBench(t, server.Addr(), group.algorithm, func(name, text string) string {
					if name == group.script {
						return strings.Replace(text, m.old, m.new, 1)
					}
					return text
				})
				judge := b.judge
				if strings.HasPrefix(group.script, "held_") { // no other part runs them
					judge = b.held
				}
				err := judge()
				if err == nil {
					t.Fatal("nothing was found wrong with it")
				}
				what, _, _ := strings.Cut(err.Error(), "\n")
				t.Log(what)
			})
		}
	}
}
