-- once.lua: one decision on one subject, once for each ID. The script of the decision goes where it says so.
--
-- KEYS     1: the subject's key   2: what the call of this ID got
-- ARGV     1: the request, as in log.lua
-- Returns  what the decision returns, or did when it charged
--
-- Invariants: what charged is remembered, with an expiry, in the same step; nothing else is. The mark is
-- written last: by then Redis no longer refuses a write for memory. A repetition writes something, so that
-- who waits for replicas after it waits for the charge too.

local known = redis.call('GET', KEYS[2])
if known then
  redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[2])) -- as it is
  return known
end

local function decide(KEYS)
-- DECIDE
end

local reply = decide({KEYS[1]})
if type(reply) ~= 'string' then return reply end -- an error
local refusals = struct.unpack('>i8', reply)
if refusals == 0 or refusals > 0 and string.byte(ARGV[1]) == 1 then
  redis.call('SET', KEYS[2], reply, 'PX', 'REPEAT_MS')
end
return reply
