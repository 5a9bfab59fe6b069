-- log_extend.lua: makes a charge in the log that log.lua keeps count from now on. The store puts log_settle.lua where it
-- says SETTLE, and log.lua where it says DECIDE; both read the clock of this script.
--
-- KEYS     1: the subject's log
-- ARGV     1: I2 length   the settlement that gives the charge back, as in log_settle.lua   a request of log.lua for as
--             much, under a limit that always has room
-- Returns  the answer of the decision, or an empty string if the charge is gone
--
-- Invariant: nothing is charged when nothing was given back, and nothing else runs in between.

local call = redis.call
local clock, request = call('TIME'), ARGV[1]

local function settle()
-- SETTLE
end

local function decide()
-- DECIDE
end

local length = struct.unpack('>I2', request)
ARGV[1] = string.sub(request, 3, 2 + length)
local settled = settle()
if settled ~= 'settled' then return settled end
ARGV[1] = string.sub(request, 3 + length)
return decide()
