-- log_settle.lua: change what a charge is worth, in the log that log.lua keeps.
--
-- KEYS     1: the subject's log   2: the mark that this settlement was applied; absent when it is not repeated
-- ARGV     1: packed like a request of log.lua with one subject and the cost that was charged, with I1 2
--             first, and last: I7 instant of the charge   I5 what it is worth   I7 instant from which
--             nothing is done
-- Returns  an empty string
--
-- The charge is in the entry of its instant or, where calls share entries, of the latest instant within
-- the same step of the resolution. Its units change there, in the total, and in every sum after it; hints
-- that say otherwise are voided. Where a clock that went back has moved the charge, more is charged to a
-- later entry, and less is not given back: the charge leaves by itself.
--
-- Invariants: those of log.lua. The mark is written first, and may be refused for memory; then nothing has
-- changed. It lives until a repetition would do nothing anyway. An entry holds at most 2^40 - 1 units, which
-- fill any limit; what is above that is dropped.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local MOD = 281474976710656

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local key, request = KEYS[1], ARGV[1]
local _, resolution, cost = unpack('>I1I7I5', request)
local at, worth, ends = unpack('>I7I5I7', request, #request - 18)
if now >= ends then return '' end
local raw = call('GETRANGE', key, '0', '50')
if raw == '' then return '' end
if #raw < 51 or string.byte(raw) ~= 1 then
  return redis.error_reply('SASH the key ' .. key .. ' holds something that is not a log of this version')
end
local _, hinted, slots, first, keep, _, _, head, total, last = unpack('>I1I1I4I6I7I6I7I6I6I7', raw)
hinted = hinted % 128
local entries, sums, lo = 51 + 26 * hinted, math.ceil(slots / 64) + 1, math.max(first, head - slots)

local function read(p)
  local o = entries + p % slots * 12
  return unpack('>I7I5', call('GETRANGE', key, o, o + 11))
end

-- search returns the first position whose entry is not earlier than a time, or head.
local function search(time)
  local x, y = lo, head
  while x < y do
    local mid = math.floor((x + y) / 2)
    if read(mid) >= time then y = mid else x = mid + 1 end
  end
  return x
end

if KEYS[2] then
  local lives = string.format('%.0f', math.ceil((ends - now) / 1000) + 1)
  if not call('SET', KEYS[2], '', 'NX', 'PX', lives) then return '' end
end

if head == lo then return '' end
local x, t, units = search(at), nil, nil
if x < head then t, units = read(x) end
local joined = x == lo and slots >= 100000 and head - lo == slots -- earlier ones are in the oldest of a full log
if x == head or not joined and math.floor(t / resolution) ~= math.floor(at / resolution) then
  if worth < cost then return '' end
  if x == head then
    x = head - 1
    t, units = read(x)
  end
end
local left = math.min(units + worth - cost, 1099511627775)
if left < 0 then return '' end
local more = left - units

call('SETRANGE', key, entries + x % slots * 12 + 7, pack('>I5', left))
for b = math.floor(x / 64) + 1, math.ceil(head / 64) - 1 do
  local o = entries + slots * 12 + 6 * (b % sums)
  local sum = unpack('>I6', call('GETRANGE', key, o, o + 5))
  call('SETRANGE', key, o, pack('>I6', (sum + more) % MOD))
end

-- A hint before the entry still holds, and one at it as long as the entry counts.
local hints, void = '', pack('>I6I6I7I7', 0, 0, 9007199254740991, 0)
raw = call('GETRANGE', key, '51', entries - 1)
for i = 1, #raw, 26 do
  local p = unpack('>I6', raw, i)
  if p < x or p == x and left > 0 then hints = hints .. string.sub(raw, i, i + 25) else hints = hints .. void end
end

-- Entries at the end that hold nothing any more are dropped, so that the last one tells when all is free.
-- What had left the longest window by then stays gone.
if left == 0 and x == head - 1 then
  lo = search(last - keep + 1)
  while head > lo do
    t, units = read(head - 1)
    if units > 0 then break end
    head = head - 1
  end
  if head > lo then last = t else last = 0 end
  call('SETRANGE', key, '6', pack('>I6', lo)) -- the slots before it hold nothing of use
end
call('SETRANGE', key, '32', pack('>I6I6I7', head, (total + more) % MOD, last) .. hints)
return ''
