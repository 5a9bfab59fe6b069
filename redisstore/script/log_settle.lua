-- log_settle.lua: corrects a charge in the log that log.lua keeps.
--
-- KEYS     1: the subject's log
-- ARGV     1: packed like a request of log.lua for one subject with the cost that was charged, but I1 2 first,
--             and at the end I7 when it was decided   I7 instant of the charge   I5 units it becomes   I7 instant from
--             which the settlement does nothing   8 bytes ID, zeros if it is never repeated
-- Returns  settled, or an empty string if it did nothing
--
-- The charge is in the entry of its instant or, where calls share entries, of the latest instant within the
-- same step, of the resolution or of a log that merges. The units change there, in the total, and in every sum after it; hints that no
-- longer hold are voided. If a clock that went back has moved the charge, additional units are charged to a
-- later entry, and none are given back: the charge leaves by itself.
--
-- Invariants: those of log.lua. The ID is the first write, which Redis may refuse for memory; then nothing has
-- changed. It is remembered until a repetition would do nothing anyway. An entry holds at most MOST_OF_ENTRY
-- units, which fill any limit; what exceeds that is dropped.

local call, pack, unpack = redis.call, struct.pack, struct.unpack

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local key, request = KEYS[1], ARGV[1]
local _, resolution, cost = unpack('>I1I7I5', request)
local decided, at, becomes, ends = unpack('>I7I7I5I7', request, #request - 33)
local id = string.sub(request, -8)
if now >= ends then return '' end
local header = call('GETRANGE', key, '0', '50')
if header == '' or string.byte(header) == 0 then return '' end -- see the invariants of log.lua
if string.byte(header) == 4 and #header > 32 then -- packed
  if decided < unpack('>I7', header, 15) then return '' end -- from before a reset
  open(key).ring(string.byte(request, 14), now)
  header = call('GETRANGE', key, '0', '50')
end
if #header < 51 then header = string.rep('\0', 51) end -- of another program
local version, hinted, slots, first, keep, keep_units, _, head, total, last = unpack('>I1I1I4I6I7I6I7I6I6I7', header)
if version ~= 2 and version ~= 3 or slots > 2^20 then -- no log has as many
  return redis.error_reply('SASH the key ' .. key .. ' holds something that is not a log of this version')
end
hinted, keep = hinted % 128, keep % 2^50
local entries, blocks, oldest = 51 + 26 * hinted, math.ceil(slots / BLOCK) + 1, math.max(first, head - slots)
local register = entries + slots * 12 + blocks * 6 + 7
local moved, born, floor = unpack('>I7I7I7', call('GETRANGE', key, register - 7, register + 13))
if decided < born then return '' end
-- Where bookings lie ahead, the last hint is that of the present.
local present, charged = nil, last
if version == 3 then
  local _, as_of
  present, _, as_of = unpack('>I6I6I7', call('GETRANGE', key, entries - 26, entries - 8))
  charged = math.min(last, as_of - 2^52)
end

-- read returns the time and the units of the entry at a position.
local function read(position)
  local offset = entries + position % slots * 12
  return unpack('>I7I5', call('GETRANGE', key, offset, offset + 11))
end

-- search returns the first position whose entry is not earlier than a time, or head.
local function search(time)
  local from, to = oldest, head
  while from < to do
    local mid = math.floor((from + to) / 2)
    if read(mid) >= time then to = mid else from = mid + 1 end
  end
  return from
end

if id ~= '\0\0\0\0\0\0\0\0' then
  local ids = of_log(key, register, LOG_IDS)
  if ids.find(id) > now or becomes < cost and ends <= floor then return '' end
  ids.put(id, ends, 0, now)
end

-- Find the entry of the charge.
if head == oldest then return '' end
local position, time_there, units = search(at), nil, nil
if position < head then time_there, units = read(position) end
-- If a clock went back, a charge made before the clock caught up is only sure to be in an entry of its own time.
local sure, bookings = at > moved % 2^52, moved >= 2^52 -- have moved, too
local function shared(step) return math.floor(time_there / step) == math.floor(at / step) end
local function one_period() -- of limits of the calendar alone
  local offset = 15
  for _ = 1, string.byte(request, 14) do
    local _, window, ends
    _, window, offset = unpack('>I5I7', request, offset)
    if window > 0 then return false end
    _, _, _, _, ends, _, offset = unpack('>I7I4I7I7I7I7', request, offset)
    if time_there >= ends then return false end
  end
  return true
end
local same = time_there == at
  or sure and time_there and (shared(resolution) or one_period() or slots >= MOST_ENTRIES and shared(steps(open).step(keep, now - at)))
if not same then
  if becomes < cost then return '' end
  local started = math.max(now, charged)
  if position == head or time_there > started then -- not to a booking
    position = math.max(oldest, search(started + 1) - 1)
    time_there, units = read(position)
  end
end
-- A full entry may stand for more than it holds: nothing is given back from it.
if becomes < cost and (units >= MOST_OF_ENTRY or units + becomes < cost) then return '' end
-- If a clock that went back has moved bookings, another booking may be at this instant now.
if becomes < cost and bookings and not sure then return '' end
local left, saturated = math.min(units + becomes - cost, MOST_OF_ENTRY), false
if left > units then
  local offset = entries + slots * 12 + 6 * (math.floor(oldest / BLOCK) % blocks)
  local sum = unpack('>I6', call('GETRANGE', key, offset, offset + 5))
  if (total - sum) % SUM_MODULUS + left - units > MOST_SUM then
    local log = open(key, slots, entries, head, total)
    oldest, saturated = steps(open).saturate(log, key, slots, entries, head, total, oldest), true
    position = math.max(position, oldest)
    time_there, units = read(position)
    left = math.min(units + becomes - cost, MOST_OF_ENTRY)
  end
end
if present and position >= present and left > units then -- see log_book.lua
  local offset = entries - 20
  local before = unpack('>I6', call('GETRANGE', key, offset, offset + 5))
  if (total - before) % SUM_MODULUS + left - units > MOST_SUM / 4 then return '' end
end
local change = left - units

-- Change the entry, and the sums after it.
if present and change < 0 then call('SETRANGE', key, '19', pack('>I6', keep_units % 2^47 + 2^47)) end -- bookings may leave gaps
call('SETRANGE', key, entries + position % slots * 12 + 7, pack('>I5', left))
for block = math.floor(position / BLOCK) + 1, math.ceil(head / BLOCK) - 1 do
  local offset = entries + slots * 12 + 6 * (block % blocks)
  local sum = unpack('>I6', call('GETRANGE', key, offset, offset + 5))
  call('SETRANGE', key, offset, pack('>I6', (sum + change) % SUM_MODULUS))
end

-- A hint before the entry still holds, and one at the entry if units are left there.
local hints, void = '', pack('>I6I6I7I7', 0, 0, 2^53 - 1, 0)
local old = call('GETRANGE', key, '51', entries - 1)
for offset = 1, #old, 26 do
  local hint, sum, as_of, since = unpack('>I6I6I7I7', old, offset)
  if present and offset == #old - 25 then
    if hint > position then sum = (sum + change) % SUM_MODULUS end
    hints = hints .. pack('>I6I6I7I7', hint, sum, as_of, since)
  elseif not saturated and (hint < position or hint == position and left > 0) then
    hints = hints .. string.sub(old, offset, offset + 25)
  else
    hints = hints .. void
  end
end

-- Entries without units at the end are dropped, so that the time of the last entry is when all units are free.
-- What had left the longest window by then stays gone.
if left == 0 and position == head - 1 then
  oldest = search(charged - keep + 1)
  while head > oldest do
    time_there, units = read(head - 1)
    if units > 0 then break end
    head = head - 1
  end
  if head > oldest then last = time_there else last = 0 end
  call('SETRANGE', key, '6', pack('>I6', oldest)) -- the slots before it hold nothing of use
end
call('SETRANGE', key, '32', pack('>I6I6I7', head, (total + change) % SUM_MODULUS, last) .. hints)
return 'settled'
