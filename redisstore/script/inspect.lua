-- inspect.lua: returns how long a key of the store lives, its memory and its log, at one instant. It only reads.
--
-- KEYS     1: the subject's key
-- ARGV     1: the type of the value, 'string' or 'zset', a space, and the most bytes of a log; 0 for a value without one
-- Returns  packed: I8 now in microseconds   i8 milliseconds to live, -2 if the key does not exist   I8 bytes of
--          memory, 0 if the user may not run MEMORY USAGE   I8 bytes of the log, 0 for a value without one;
--          then the log, or nothing if it is larger than the most
--
-- Its work is in proportion to the value: 115 kB for a log with 8,192 entries. It is for people who look at
-- one subject, and not part of a decision.

local call, pack = redis.call, struct.pack
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local key = KEYS[1]
local form, most = string.match(ARGV[1], '^(%a+) (%d+)$')

local memory = redis.pcall('MEMORY', 'USAGE', key)
if type(memory) ~= 'number' then memory = 0 end

local log, size = '', 0
if form == 'zset' then
  call('ZCARD', key) -- an error for another type
else
  log = call('GETRANGE', key, '0', most)
  if most ~= '0' then size = #log end
  if #log > tonumber(most) then log = '' end
end
return pack('>I8i8I8I8', now, call('PTTL', key), memory, size) .. log
