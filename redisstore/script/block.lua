-- block.lua: a decision whose refusals are counted. A subject that is refused too often is blocked for a time. The store
-- puts the script of a decision where it says DECIDE.
--
-- KEYS     the subjects' keys, and then the key of the block of each
-- ARGV     1: the request, as in the decision's script, and at the end I2 refusals   I7 window   I7 length of a block
-- Returns  what the decision returns and, if that is an answer, I8 for each subject: the time until its block ends, or 0.
--          If one is blocked, the answer is that to a look, and 2^52 is added for each of the others that refuses.
--
-- The value of a block is I7 end, I7 length, and I7 for each refusal that is counted: the latest ones within a window.
-- Counting begins anew when a block begins. The end is 0 until the first block.
--
-- Invariants: a look and an admission write no block, unless the clock went back. Each write sets the expiry. If Redis
-- refuses the write, for lack of memory, the refusal stands and is not counted. After a clock that went back a block
-- lasts no longer than its length, and refusals later than now count as of now.

local all, subjects = KEYS, #KEYS / 2
local KEYS = {}
for s = 1, subjects do KEYS[s] = all[s] end

local function decide()
-- DECIDE
end

local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local request = sub(ARGV[1], 1, -17)
local most, window, length = unpack('>I2I7I7', ARGV[1], #request + 1)

-- The limits of each subject, and the request at no cost.
local limits, costs, look, asks, at = {}, {}, sub(request, 1, 8), false, 9
for s = 1, subjects do
  local cost, from
  cost, limits[s], from = unpack('>I5I1', request, at)
  costs[s], at = cost, from
  for _ = 1, limits[s] do
    local _, slides
    _, slides, at = unpack('>I5I7', request, at)
    if slides == 0 then at = at + 39 end -- a calendar limit
  end
  asks = asks or cost > 0
  look = look .. '\0\0\0\0\0' .. sub(request, from - 1, at - 1)
end
look = look .. sub(request, at)

-- answered returns the refusals of a reply and its time, or nothing if the reply is no answer.
local function answered(reply)
  if type(reply) ~= 'string' then return nil end -- an error
  local refusals, now = unpack('>i8I8', reply)
  if refusals >= 0 then return refusals, now end -- or boundaries of a calendar limit around another time
end

-- repeats reports whether the refusals belong to a call that was charged before.
local function repeats(refusals) return refusals % 2^42 >= 2^41 end

local blocks, known = {}, false
for s = 1, subjects do
  local value = call('GET', all[subjects + s])
  if value and (#value < 14 or #value % 7 > 0) then
    return redis.error_reply('SASH the key ' .. all[subjects + s] .. ' holds something that is not a block of this version')
  end
  known, blocks[s] = known or value, value or ''
end

-- write stores the block of a subject, unless Redis has no memory for it.
local function write(s, ends, lasts, times, lives)
  redis.pcall('SET', all[subjects + s], pack('>I7I7', ends, lasts) .. times, 'PX',
    string.format('%.0f', math.ceil(lives / 1000) + 1))
end

-- left returns the time until the block of a subject ends.
local function left(s, now)
  if blocks[s] == '' then return 0 end
  local ends, lasts = unpack('>I7I7', blocks[s])
  if ends > now + lasts + STEP_BACK then -- the clock went back
    ends = now + lasts
    write(s, ends, lasts, '', lasts)
  end
  return math.max(0, ends - now)
end

-- refuse counts a refusal of a subject, and returns the length of the block that begins with it, or 0.
local function refuse(s, now)
  local times, n, ends, remains = '', 1, 0, 0
  for i = 15, #blocks[s], 7 do
    local time = math.min(now, (unpack('>I7', blocks[s], i)))
    if time > now - window then times, n = times .. pack('>I7', time), n + 1 end
  end
  if n < most then
    times = times .. pack('>I7', now)
  else
    times, ends, remains = '', now + length, length
  end
  write(s, ends, length, times, math.max(remains, window))
  return remains
end

if known or not asks then
  ARGV[1] = look
  local reply = decide()
  local refusals, now = answered(reply)
  if not refusals then return reply end
  local lefts, blocked, out, at = {}, false, '', 17
  for s = 1, subjects do
    lefts[s] = not repeats(refusals) and left(s, now) or 0 -- a repetition is decided already
    blocked = blocked or lefts[s] > 0
  end
  for s = 1, subjects do
    local own = false
    for _ = 1, limits[s] do
      own, at = own or unpack('>I8', reply, at) < costs[s], at + 32
    end
    if blocked and own and lefts[s] == 0 then lefts[s] = 2^52 + refuse(s, now) end
    out = out .. pack('>I8', lefts[s])
  end
  if blocked or not asks or repeats(refusals) then return reply .. out end
end

ARGV[1] = request
local reply = decide()
local refusals, now = answered(reply)
if not refusals then return reply end
local bits, out = repeats(refusals) and 0 or refusals % 2^40, ''
for s = 1, subjects do
  local own, remains = bits % 2^limits[s], 0
  bits = math.floor(bits / 2^limits[s])
  if own > 0 then remains = refuse(s, now) end
  out = out .. pack('>I8', remains)
end
return reply .. out
