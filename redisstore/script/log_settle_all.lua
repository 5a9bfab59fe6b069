-- log_settle_all.lua: corrects charges in several logs, each by itself. The store puts log_settle.lua where it says SETTLE.
--
-- KEYS     one log per subject
-- ARGV     1: per subject I2 bytes of its settlement, and the settlement, as in log_settle.lua
-- Returns  settled, or the error of one that failed. The others are settled.

local call = redis.call
local clock, request = call('TIME'), ARGV[1]
local keys, KEYS, failed, at = KEYS, {''}, nil, 1

local function settle()
-- SETTLE
end

for i = 1, #keys do
  local length
  length, at = struct.unpack('>I2', request, at)
  KEYS[1], ARGV[1], at = keys[i], string.sub(request, at, at + length - 1), at + length
  local ok, reply = pcall(settle)
  if not ok and type(reply) == 'string' then reply = redis.error_reply(reply) end
  if type(reply) == 'table' then failed = reply end
end
return failed or 'settled'
