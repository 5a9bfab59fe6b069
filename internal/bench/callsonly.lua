-- callsonly.lua: the calls into Redis of a decision of the compact log on one limit, and its packing, without the decision.
-- The limit of what the script can reach.
--
-- KEYS     a string
-- ARGV     1: as long as the argument of a decision
-- Returns  a string as long as an answer

local key, arg = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local head = redis.call('GETRANGE', key, '0', '76')
local position, entries = 77, 0
if #head == 77 then
  position, entries = struct.unpack('>I7I4', head, 33)
end
if position < 77 or position > 12000 then position = 77 end
struct.unpack('>BBI7I7', arg .. '0000000000000000')
redis.call('SETRANGE', key, string.format('%d', position), struct.pack('>I7I5', now, 1))
redis.call('SETRANGE', key, '32', struct.pack('>BI7I4I7', 1, position + 12, entries + 1, now) .. struct.pack('>I7I7I6I6', now, now, 1, 1))
if entries == 0 then redis.call('PEXPIRE', key, 60000) end
return struct.pack('>BI7I7I7I7I7I7', 1, 1, 1, now, now, now, now)
