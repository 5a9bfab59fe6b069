-- cooldown.lua: begin a cool-down, unless there is one that ends as late, and return the one that holds.
--
-- KEYS     1: the cool-down of a subject's key
-- ARGV     1: I7 length in microseconds, 0 only looks   I1 whether the length is a guess
-- Returns  I7 length   I1 whether it is a guess   i8 what is left, negative after the end;
--          or an empty string when there is none
--
-- The value is I7 end, I7 length, I1 whether that is a guess. It is kept after the end for as long as the
-- cool-down lasted, and 10 s at least.
--
-- Invariants: the end moves forward only, except by a clock that went back: then a cool-down that began
-- later than now begins now. A look writes nothing else. Every write sets the expiry.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local new, guess = unpack('>I7I1', ARGV[1])
local key = KEYS[1]

local function keep(length) return math.max(length, 10000000) end

local write, ends, length, guessed = false, nil, nil, nil
local raw = call('GET', key)
if raw then
  if #raw ~= 15 then
    return redis.error_reply('SASH the key ' .. key .. ' holds something that is not a cool-down of this version')
  end
  ends, length, guessed = unpack('>I7I7I1', raw)
  if now >= ends + keep(length) then
    ends = nil
  elseif ends > now + length then
    ends, write = now + length, true
  end
end
if new > 0 and (not ends or now + new > ends) then
  ends, length, guessed, write = now + new, new, guess, true
end
if not ends then return '' end
if write then
  local lives = math.ceil((ends + keep(length) - now) / 1000)
  call('SET', key, pack('>I7I7I1', ends, length, guessed), 'PX', string.format('%.0f', lives))
end
return pack('>I7I1i8', length, guessed, ends - now)
