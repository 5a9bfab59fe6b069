-- log_extend.lua: makes a charge in the log that log.lua keeps count from now on, or bookings in several. The store puts
-- log_settle.lua where it says SETTLE, and log.lua where it says DECIDE; both read the clock of this script.
--
-- KEYS     one log per subject
-- ARGV     1: per subject I2 length, plus 2^15 for a booking   the settlement that gives the charge back, as in
--             log_settle.lua; then
--             a request of log.lua for as much, under a limit that always has room, or for bookings their own
-- Returns  the answer of the decision, or an empty string if a charge is gone
--
-- Invariant: all charges are moved, or every key is as it was: if one is gone, or bookings have no room now.

local call = redis.call
local clock, request = call('TIME'), ARGV[1]
local keys, KEYS, saved, at = KEYS, {''}, {}, 1

local function settle()
-- SETTLE
end

local function decide()
-- DECIDE
end

local function restore()
  for i = #saved, 1, -1 do -- a key that is there twice ends as it began
    if saved[i] then call('SET', keys[i], saved[i], 'KEEPTTL') end
  end
end

for i = 1, #keys do saved[i] = call('GET', keys[i]) end -- before anything can fail
for i = 1, #keys do
  local length = struct.unpack('>I2', request, at)
  local booked, from = length >= 2^15, at + 2
  at = from + length % 2^15
  local settled = ''
  if not booked or struct.unpack('>I7', request, at - 27) > clock[1] * 1000000 + clock[2] then -- it has not started
    KEYS[1], ARGV[1] = keys[i], string.sub(request, from, at - 1)
    settled = settle()
  end
  if settled ~= 'settled' then
    restore()
    return settled
  end
end
KEYS, ARGV[1] = keys, string.sub(request, at)
local reply = decide()
if type(reply) ~= 'string' or struct.unpack('>i8', reply) ~= 0 then restore() end
return reply
