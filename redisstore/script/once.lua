-- once.lua: one decision on one subject, made once for each ID. The store puts the script of the decision
-- where it says DECIDE.
--
-- KEYS     1: the subject's key   2: the mark of this ID: the answer to its call
-- ARGV     1: the request, as in log.lua
-- Returns  the answer of the decision, or the one of the call that charged
--
-- Invariants: the answer to a call that charged is stored in the same step, with an expiry; no other answer is. The
-- mark is the last write: by then Redis no longer refuses a write for memory. A repetition writes too, so that
-- a client that waits for replicas after it waits for the charge.

local known = redis.call('GET', KEYS[2])
if known then
  redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[2])) -- the same expiry
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
