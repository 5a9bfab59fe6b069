-- leancounter.lua: a sliding window counter: the smallest script found that answers as much as redisstore's does for one
-- limit, without settlements, IDs, several subjects or a clock that goes back. Its times are as exact as a division.
--
-- KEYS     I7 start of the bucket   I7 units since then   I7 units of the bucket before
-- ARGV     1: window in microseconds   2: units   3: cost
-- Returns  {1 or 0, units left, microseconds until the call fits, until more is left, until nothing is in use}

-- wait returns the time until no more than a goal counts.
local function wait(elapsed, window, current, previous, goal)
  local d
  if goal >= current then
    d = window - math.floor((goal - current) * window / previous) - elapsed
  else
    d = 2 * window - math.floor(goal * window / current) - elapsed
  end
  return math.max(1, d)
end

local key, window, units, cost = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local elapsed, current, previous, known = now % window, 0, 0, false
local value = redis.call('GET', key)
if value then
  local at, x, y = struct.unpack('>I7I7I7', value)
  if at == now - elapsed then
    current, previous, known = x, y, true
  elseif at == now - elapsed - window then
    previous = x
  end
end

local used = current + math.ceil(previous * (window - elapsed) / window)
if used + cost > units then
  return {0, units - used, wait(elapsed, window, current, previous, units - cost),
    wait(elapsed, window, current, previous, used - 1), wait(elapsed, window, current, previous, 0)}
end
current, used = current + cost, used + cost
if known then
  redis.call('SETRANGE', key, '7', struct.pack('>I7', current))
else
  redis.call('SET', key, struct.pack('>I7I7I7', now - elapsed, current, previous), 'PX',
    math.ceil((2 * window - elapsed) / 1000))
end
return {1, units - used, 0, wait(elapsed, window, current, previous, used - 1),
  wait(elapsed, window, current, previous, 0)}
