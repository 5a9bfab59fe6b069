-- held_bring.lua: records the outcome of a fetch, or takes units out of a lease.
--
-- KEYS     1: the leases of a subject, see held_spend.lua
-- ARGV     1: I1 what, and then
--             1 bring    I7 longest lease   I7 began   I5 units   I7 delay   I7 refused for   I5 cost that is refused
--                        I7 failed for   I6 one more than the units that the home has left, or 0; then the note
--             2 return   I7 began   I5 units to keep
-- Returns  I7: 1 if a lease is kept, or the units that were taken out, or 0
--
-- A lease is kept only if its fetch is the last one in the value: no other fetch has begun since, in this process of Redis.
--
-- Invariants: one write, which is the last step and leaves an expiry. What changes nothing writes nothing.

local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local key, argument = KEYS[1], ARGV[1]
local value = call('GET', key) or ''
local size = #value

-- Read.
local process = sub(tostring(call), -12)
local expires, since, current, past = 0, 0, 0, 0
local began, busy, down, rest, leases = 0, 0, 0, 0, {}
local refused, least, came, refusal = 0, 0, 0, ''
if size > 0 then
  local version
  if size >= 25 then version, expires, since, current, past = unpack('>I1I7I7I5I5', value) end
  if version ~= 1 or size > 25 and size < 106 then
    return redis.error_reply('SASH the key ' .. key .. ' holds something that is not leases of this version')
  end
  if size > 25 and sub(value, 46, 57) ~= process then
    expires, since, current, past, size = 0, 0, 0, 0, 0
  end
end
if size > 25 then
  local length, n
  began, busy, down, refused, least, came, length, rest, n = unpack('>I7I7I7I7I5I7I2I6I1', value, 58)
  refusal = sub(value, size - length + 1)
  local at = 107
  for i = 1, n do
    local lease, note = {left = (unpack('>I5', value, 21 + 5 * i))}, 0
    lease.began, lease.starts, lease.ends, lease.brought, length, note = unpack('>I7I7I7I7I2', value, at)
    lease.note, at = sub(value, note, note + length - 1), note + length
    leases[i] = lease
  end
end

-- write writes the value anew, to live at least until an instant.
local function write(lives)
  if expires < lives then expires = lives end
  local left, out = '', ''
  for i = 1, 4 do
    local lease = leases[i]
    left = left .. pack('>I5', lease and lease.left or 0)
    if lease then
      out = out .. pack('>I7I7I7I7I2', lease.began, lease.starts, lease.ends, lease.brought, #lease.note) .. lease.note
    end
  end
  call('SET', key, pack('>I1I7I7I5I5', 1, expires, since, current, past) .. left .. process
    .. pack('>I7I7I7I7I5I7I2I6I1', began, busy, down, refused, least, came, #refusal, rest, #leases) .. out .. refusal,
    'PX', string.format('%.0f', math.max(1, math.ceil((expires - now) / 1000) + 1)))
end

-- keep adds a lease, and drops those that are of no use any more. If there are too many, the one that ended first makes
-- room. It reports whether there was room.
local function keep(lease, longest)
  local kept, first = {}, nil
  for _, other in ipairs(leases) do
    if other.left > 0 and other.ends + longest > now then
      kept[#kept + 1] = other
      if not first or other.ends < kept[first].ends then first = #kept end
    end
  end
  leases = kept
  for _, other in ipairs(kept) do
    if other.began == lease.began then return false end
  end
  if #kept >= MAX_LEASES then
    if kept[first].ends > now then return false end
    table.remove(kept, first)
  end
  kept[#kept + 1] = lease
  return true
end

local result = 0
if string.byte(argument) == 1 then
  local _, longest, from, units, delay, refuses, cost, failed, home, at = unpack('>I1I7I7I5I7I7I5I7I6', argument)
  local note, lives = sub(argument, at), 0
  if from ~= 0 and (from ~= began or now < from) then return pack('>I7', 0) end
  if from ~= 0 then began, busy = 0, 0 end
  rest = home
  -- The clock may gain or lose a 1,024th on the home's.
  local lease = {began = from, starts = now + delay + math.ceil(delay / 1024), left = units, brought = now, note = note}
  lease.ends = from + delay + longest - math.ceil((delay + longest) / 1024)
  if units > 0 and from > 0 and lease.ends > lease.starts and keep(lease, longest) then
    refused, least, came, refusal, down = 0, 0, 0, '', 0
    lives, result = lease.ends + longest, 1
  elseif units == 0 and refuses > 0 then
    refused, least, came, refusal = (from > 0 and from or now) + refuses, cost, now, note
    if from > 0 then busy = refused end -- no caller fetches a lease ahead
    lives = refused
  elseif units == 0 and failed > 0 then
    down = now + failed
    lives = down
  end
  if size > 0 or lives > 0 then write(lives) end
else
  local _, from, keep = unpack('>I1I7I5', argument)
  for _, lease in ipairs(leases) do
    if lease.began == from and lease.left > keep then
      result, lease.left = result + lease.left - keep, keep
    end
  end
  if result > 0 then write(0) end
end
return pack('>I7', result)
