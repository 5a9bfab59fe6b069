-- cell.lua: the decision of CL.THROTTLE, as the module redis-cell makes it, in a script.
-- From its definition: https://github.com/brandur/redis-cell, README.md and src/cell/mod.rs, since version 0.2.2.
--
-- It is the generic cell rate algorithm. A call that comes evenly comes at the theoretical arrival time (tat), which each
-- unit moves on by the interval period / count. A call may come as early as max_burst + 1 intervals before its tat.
--
-- KEYS     the subject's tat: microseconds since 2025, so few that a double holds their 64th part
-- ARGV     1: max_burst   2: count   3: period in seconds   4: quantity
-- Returns  {1 if limited, or 0; max_burst + 1; units left; seconds until a retry, or -1; seconds until all units are free}

local key = KEYS[1]
local limit, quantity = ARGV[1] + 1, ARGV[4]
local interval = ARGV[3] * 1000000 / ARGV[2]
local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 1000000 + time[2]

local tat = math.max(now, tonumber(redis.call('GET', key)) or 0)
local tolerance = interval * limit
local new = tat + interval * quantity
local early = new - tolerance - now -- until the call may come

local limited, retry, ttl = 0, -1, new - now
if early > 0 then
  limited, ttl = 1, tat - now
  if interval * quantity <= tolerance then
    retry = math.ceil(early / 1000000)
  end
elseif ttl > 0 then
  redis.call('SET', key, new, 'PX', math.ceil(ttl / 1000))
end
local left = math.max(0, math.floor((tolerance - ttl) / interval))
return {limited, limit, left, retry, math.ceil(ttl / 1000000)}
