-- log_refund.lua: take a charge back out of the log that log.lua keeps.
--
-- KEYS     the subject's log
-- ARGV     1: packed like a request of log.lua with one subject, with I1 2 first and the instant of the
--             charge, I7, last
-- Returns  an empty string
--
-- The charge is in the entry of its instant or, where calls share entries, of the latest instant within
-- the same step of the resolution. Its units leave that entry, the total, and every sum and hint after
-- it. Where the entry cannot be told any more nothing is given back: the charge leaves by itself.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local MOD = 281474976710656

local key, request = KEYS[1], ARGV[1]
local _, resolution, cost = unpack('>I1I7I5', request)
local at = unpack('>I7', request, #request - 6)
local raw = call('GETRANGE', key, '0', '50')
if raw == '' then return '' end
if #raw < 51 or string.byte(raw) ~= 1 then
  return redis.error_reply('SASH the key ' .. key .. ' holds something that is not a log of this version')
end
local _, hinted, slots, first, keep, _, _, head, total, last = unpack('>I1I1I4I6I7I6I7I6I6I7', raw)
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

local x = search(at)
if x == head then return '' end
local t, units = read(x)
if t - at >= resolution or units < cost then return '' end

call('SETRANGE', key, entries + x % slots * 12 + 7, pack('>I5', units - cost))
for b = math.floor(x / 64) + 1, math.ceil(head / 64) - 1 do
  local o = entries + slots * 12 + 6 * (b % sums)
  local sum = unpack('>I6', call('GETRANGE', key, o, o + 5))
  call('SETRANGE', key, o, pack('>I6', (sum - cost) % MOD))
end

-- Entries at the end that hold nothing any more are dropped, so that the last one tells when all is free.
-- What had left the longest window by then stays gone.
lo = search(last - keep + 1)
while head > lo do
  t, units = read(head - 1)
  if units > 0 then break end
  head = head - 1
end
if head > lo then last = t else last = 0 end
call('SETRANGE', key, '6', pack('>I6', lo)) -- the slots before it hold nothing of use
local void = string.rep(pack('>I6I6I7I7', 0, 0, 9007199254740991, 0), hinted)
call('SETRANGE', key, '32', pack('>I6I6I7', head, (total - cost) % MOD, last) .. void)
return ''
