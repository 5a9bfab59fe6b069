-- rota.lua: gives a charge back and decides on a slot, in turn with the lines of other processes. The store puts the script
-- that settles where it says SETTLE, and that of the decision where it says DECIDE; both read the clock of this script.
--
-- KEYS     1: the subject, 2: its rota
-- ARGV     1: the request of the decision   the settlement that gives the charge back, or nothing   and at the end
--             8 bytes name of the line   I7 time for which it stays in the rota   I4 how often others are admitted past the
--             first   I1 whether more callers stand in the line   I2 length of the settlement
-- Returns  the answer of the decision
--
-- The value of a rota is I4 how often others were admitted past the first, and then for each line, in the order of their
-- turns, its 8 bytes and I7 the time at which it loses its place.
--
-- Invariants: the rota is the last write. If Redis has no memory for it, it stays as it was. It lives no longer than its
-- lines.

local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local clock, all, argument = call('TIME'), KEYS, ARGV[1]
local now = clock[1] * 1000000 + clock[2]
local KEYS = {all[1]}

local function settle()
-- SETTLE
end

local function decide()
-- DECIDE
end

local name, stays, most, more, length = unpack('>c8I7I4I1I2', sub(argument, -22))
local request = sub(argument, 1, -23 - length)

-- Read the rota, without lines that did not ask in time, and those that a clock which went back would keep.
local value = call('GET', all[2]) or '\0\0\0\0'
if #value < 4 or (#value - 4) % 15 > 0 then
  return redis.error_reply('SASH the key ' .. all[2] .. ' holds something that is not a rota of this version')
end
local passed, places, mine = unpack('>I4', value), {}, nil
for at = 5, #value, 15 do
  local line, ends = unpack('>c8I7', value, at)
  if ends > now and ends <= now + MAX_STAY then
    places[#places + 1] = {line, ends}
    if line == name then mine = #places end
  elseif at == 5 then
    passed = 0 -- another line is the first
  end
end

if length > 0 then
  ARGV[1] = sub(argument, -22 - length, -23)
  local settled = settle()
  if type(settled) ~= 'string' then return settled end
end

local may = #places == 0 or mine == 1 or passed < most
ARGV[1] = may and request or sub(request, 1, 8) .. '\0\0\0\0\0' .. sub(request, 14)
local reply = decide()
if type(reply) ~= 'string' then return reply end
if not may then
  local _, at, remaining, _, release, reset = unpack('>i8I8I8I8I8I8', reply)
  reply = pack('>i8I8I8I8I8I8', 2^40 + 1, at, remaining, stays, release, reset)
end
local admitted = unpack('>i8', reply) == 0

if admitted and mine == 1 then
  passed = 0
elseif admitted and #places > 0 then
  passed = passed + 1
end
local joins = not admitted or mine == 1 and more == 1
if admitted and mine and (mine == 1 or more == 0) then
  table.remove(places, mine)
  mine = nil
end
if mine then
  places[mine][2] = now + stays
elseif joins and #places < MAX_LINES then
  places[#places + 1] = {name, now + stays}
end

local out, lives = pack('>I4', passed), 0
for _, place in ipairs(places) do
  out, lives = out .. pack('>c8I7', place[1], place[2]), math.max(lives, place[2] - now)
end
if #places > 0 then
  redis.pcall('SET', all[2], out, 'PX', string.format('%.0f', math.ceil(lives / 1000) + 1))
elseif #value > 4 then
  call('DEL', all[2])
end
return reply
