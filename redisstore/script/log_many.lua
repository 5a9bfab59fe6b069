-- log_many.lua: decisions on several logs, one after the other, each by itself. The store puts log.lua where it says
-- DECIDE, which then decides on one subject.
--
-- KEYS     one log per subject
-- ARGV     1: per subject I2 bytes of its request, and the request, as in log.lua; 0 bytes or nothing mean the request
--             of the subject before
-- Returns  per subject I2 bytes of its answer, and the answer, as in log.lua; or 2^15 + the bytes of an error, and its text
--
-- Invariant: a decision that fails does not affect the other subjects. It has written nothing, by the invariants of
-- log.lua.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local keys, requests, KEYS = KEYS, ARGV[1], {''}

local function decide(now, clock, looks)
-- DECIDE
end

local pack, unpack = struct.pack, struct.unpack
local replies, at, size, head = {}, 1, 0, nil -- most answers have as many bytes as the one before
for i = 1, #keys do
  if at <= #requests then
    local length
    length, at = unpack('>I2', requests, at)
    if length > 0 then ARGV[1] = string.sub(requests, at, at + length - 1) end
    at = at + length
  end
  KEYS[1] = keys[i]
  local ok, reply = pcall(decide, now, now, false)
  if ok and not reply.err then -- a string: an error is a table
    if #reply ~= size then size, head = #reply, pack('>I2', #reply) end
    replies[2 * i - 1], replies[2 * i] = head, reply
  else
    reply = string.sub(type(reply) == 'table' and reply.err or tostring(reply), 1, 1000)
    if not ok then reply = reply .. ' script: log_many, on @user_script:0.' end -- as Redis does
    replies[2 * i - 1], replies[2 * i] = pack('>I2', 2^15 + #reply), reply
  end
end
return table.concat(replies)
