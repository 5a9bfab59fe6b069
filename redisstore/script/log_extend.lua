-- log_extend.lua: makes a charge in the log that log.lua keeps count from now on. The store puts log_settle.lua where it
-- says SETTLE, and log.lua where it says DECIDE; both read the clock of this script.
--
-- KEYS     1: the subject's log
-- ARGV     1: I2 length, plus 2^15 for a booking   the settlement that gives the charge back, as in log_settle.lua
--             a request of log.lua for as much, under a limit that always has room, or for a booking its own
-- Returns  the answer of the decision, or an empty string if the charge is gone
--
-- Invariant: nothing is charged when nothing was given back, and nothing else runs in between. A booking that has no room
-- now stays as it was.

local call = redis.call
local clock, request = call('TIME'), ARGV[1]

local function settle()
-- SETTLE
end

local function decide()
-- DECIDE
end

local length, saved = struct.unpack('>I2', request), nil
if length >= 2^15 then
  length = length - 2^15
  if struct.unpack('>I7', request, length - 24) <= clock[1] * 1000000 + clock[2] then return '' end -- it has started
  saved = call('GET', KEYS[1])
end
ARGV[1] = string.sub(request, 3, 2 + length)
local settled = settle()
if settled ~= 'settled' then return settled end
ARGV[1] = string.sub(request, 3 + length)
local reply = decide()
if saved and (type(reply) ~= 'string' or struct.unpack('>i8', reply) ~= 0) then
  call('SET', KEYS[1], saved, 'KEEPTTL')
end
return reply
