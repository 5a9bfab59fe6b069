-- log_many.lua: decisions on several logs, one after the other, each by itself. The store puts log.lua where it says
-- DECIDE, which then decides on one subject.
--
-- KEYS     one log per subject
-- ARGV     1: per subject I2 bytes of its request, and the request, as in log.lua; 0 bytes are the request before
-- Returns  per subject I2 bytes of its answer, and the answer, as in log.lua; or 2^15 + the bytes of an error, and its text
--
-- Invariant: a subject whose decision fails leaves the others alone. A decision that fails has written nothing, as log.lua
-- has it.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local keys, requests, KEYS = KEYS, ARGV[1], {''}

local function decide(now, clock, looks)
-- DECIDE
end

local pack, unpack = struct.pack, struct.unpack
local replies, at = {}, 1
for i, key in ipairs(keys) do
  local length
  length, at = unpack('>I2', requests, at)
  if length > 0 then ARGV[1] = string.sub(requests, at, at + length - 1) end
  KEYS[1], at = key, at + length
  local ok, reply = pcall(decide, now, now, false)
  if ok and type(reply) == 'string' then
    replies[i] = pack('>I2', #reply) .. reply
  else
    reply = string.sub(type(reply) == 'table' and reply.err or tostring(reply), 1, 1000)
    if not ok then reply = reply .. ' script: log_many, on @user_script:0.' end -- as Redis does
    replies[i] = pack('>I2', 2^15 + #reply) .. reply
  end
end
return table.concat(replies)
