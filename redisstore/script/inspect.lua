-- inspect.lua: returns how long a key of the store lives, its memory and its log, at one instant. It only reads.
--
-- KEYS     1: the subject's key
-- ARGV     1: the form of the value, 'log', 'zset' or 'none' for a string without a log, a space, and the most to
--             read: bytes of a string, members of a sorted set
-- Returns  packed: I8 now in microseconds   i8 milliseconds to live, -2 if the key does not exist   I8 bytes of
--          memory, 0 if the user may not run MEMORY USAGE   I8 size of the value: bytes or members;
--          then the value, or nothing if it is larger than the most to read
--          zset: each element as I4 length and its bytes: members with scores, the oldest first
--
-- Its work is in proportion to the value: 1.3 MB for a log with 100,000 entries. It is for people who look at
-- one subject, and not part of a decision.

local call, pack = redis.call, struct.pack
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local key = KEYS[1]
local form, most = string.match(ARGV[1], '^(%a+) (%d+)$')
most = tonumber(most)

local memory = redis.pcall('MEMORY', 'USAGE', key)
if type(memory) ~= 'number' then memory = 0 end

local size, body
if form == 'zset' then
  size = call('ZCARD', key)
  local parts = {}
  if size <= most then
    local elements = call('ZRANGE', key, '0', '-1', 'WITHSCORES')
    for i, element in ipairs(elements) do
      parts[2 * i - 1], parts[2 * i] = pack('>I4', #element), element
    end
  end
  body = table.concat(parts)
else
  body = call('GETRANGE', key, '0', string.format('%d', most))
  size = form == 'log' and #body or 0
  if #body > most then body = '' end
end
return pack('>I8i8I8I8', now, call('PTTL', key), memory, size) .. body
