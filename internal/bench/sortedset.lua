-- sortedset.lua: a sliding log as services usually write it, one sorted-set member a unit. The baseline.
--
-- KEYS     the subject's sorted set
-- ARGV     1: window in microseconds   2: units   3: cost   4: a text unique to the call
-- Returns  {1 or 0, units left, microseconds until the oldest member leaves}

local key = KEYS[1]
local window, units, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
local used = redis.call('ZCARD', key)
if used + cost > units then
  local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return {0, units - used, oldest[2] + window - now}
end
for i = 1, cost do
  redis.call('ZADD', key, now, ARGV[4] .. ':' .. i)
end
redis.call('PEXPIRE', key, math.ceil(window / 1000))
return {1, units - used - cost, 0}
