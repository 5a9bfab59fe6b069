-- leanset.lua: a sliding log as a sorted set, one member a call: the smallest script found that answers as much as
-- redisstore's does for one limit, without settlements, IDs, several subjects or a clock that goes back.
--
-- KEYS     the subject's sorted set: members <sum of units up to this one>:<units>, the score is the time
-- ARGV     1: window in microseconds   2: units   3: cost
-- Returns  {1 or 0, units left, microseconds until the call fits, until more is left, until nothing is in use}

local key, window, units, cost = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
local first = redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')
local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
local before, sum, reset = 0, 0, window
if first[1] then
  local all, own = string.match(first[1], '(%d+):(%d+)')
  before, sum = all - own, tonumber((string.match(last[1], '%d+')))
end
local used = sum - before
local release = (first[2] or now) + window - now
if used + cost > units then
  local retry = release
  if cost > 1 then
    local low, high = 0, redis.call('ZCARD', key) - 1
    while low < high do
      local mid = math.floor((low + high) / 2)
      local there = string.match(redis.call('ZRANGE', key, mid, mid)[1], '%d+') - before
      if there >= used + cost - units then high = mid else low = mid + 1 end
    end
    retry = redis.call('ZRANGE', key, low, low, 'WITHSCORES')[2] + window - now
  end
  return {0, units - used, retry, release, last[2] + window - now}
end
redis.call('ZADD', key, now, string.format('%d:%d', sum + cost, cost))
redis.call('PEXPIRE', key, math.ceil(window / 1000))
return {1, units - used - cost, 0, release, window}
