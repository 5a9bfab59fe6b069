-- instances.lua: records that an instance is alive, and counts the instances that are.
--
-- KEYS     1: the group: a sorted set of instances, by the millisecond until which each counts as alive
-- ARGV     1: I7 milliseconds for which this instance counts as alive; then its name
-- Returns  the number of instances alive, in decimal
--
-- Invariant: the key lives as long as its last instance. After a clock that went back, an instance that ended
-- counts longer; after one that jumped forward, the others count again from their next call on.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lives = struct.unpack('>I7', ARGV[1])
local function int(n) return string.format('%.0f', n) end

call('ZADD', KEYS[1], int(now + lives), string.sub(ARGV[1], 8))
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
local last = call('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')[2]
call('PEXPIRE', KEYS[1], int(math.max(lives, last - now)))
return tostring(call('ZCARD', KEYS[1]))
