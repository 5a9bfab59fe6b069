-- leanfixed.lua: a fixed window whose length is whole milliseconds: the smallest script found that answers as much as
-- redisstore's does for one limit, without settlements, IDs, several subjects or a clock that goes back.
--
-- KEYS     the units of the window, which expire with it
-- ARGV     1: window in microseconds   2: units   3: cost
-- Returns  {1 or 0, units left, microseconds until the call fits, until more is left, until nothing is in use}

local key, window, units, cost = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local left = window - now % window
local count = tonumber(redis.call('GET', key) or 0)
if count + cost > units then return {0, units - count, left, left, left} end
if count == 0 then
  redis.call('SET', key, cost, 'PX', math.ceil(left / 1000))
else
  redis.call('INCRBY', key, cost)
end
return {1, units - count - cost, 0, left, left}
