-- counter.lua: the sliding window counter, on a hash with two buckets. It is approximate.
--
-- KEYS, ARGV, returns: see shared.lua
-- Fields  <window>:start     start of the current bucket, a multiple of the window, in microseconds
--         <window>:current   units charged since then
--         <window>:previous  units charged in the previous bucket
--         register           see register.lua
--
-- used = current + ceil(previous * (window - elapsed) / window), in double precision and in this order.
--
-- Invariants: the key lives until the end of the bucket after the latest; a refusal writes nothing, but a
-- clock that went back moves the counts to the bucket of now, once.

local function read(subject)
  for _, l in ipairs(subject.limits) do
    local state = call('HMGET', subject.key, l.id .. ':start', l.id .. ':current', l.id .. ':previous')
    l.current, l.previous = 0, 0
    if state[1] then
      local start, current, previous = tonumber(state[1]), tonumber(state[2]), tonumber(state[3])
      if start >= l.start then
        l.current, l.previous = current, previous
      elseif start == l.start - l.window then
        l.previous = current
      end
      if start > l.start then call('HSET', subject.key, l.id .. ':start', int(l.start)) end
    end
  end
end

-- used returns the weighted count d microseconds from now if no call comes until then.
local function used(l, d)
  local at = now + d - l.start
  if at < l.window then return l.current + math.ceil(l.previous * (l.window - at) / l.window) end
  if at < 2 * l.window then return math.ceil(l.current * (2 * l.window - at) / l.window) end
  return 0
end

-- wait returns the smallest d at which used falls to goal: it solves for the time elapsed, and corrects the
-- rounding of the division.
local function wait(l, goal)
  if used(l, 0) <= goal then return 0 end
  local elapsed
  if goal >= l.current then
    elapsed = l.window - math.floor((goal - l.current) * l.window / l.previous)
  else
    elapsed = 2 * l.window - math.floor(goal * l.window / l.current)
  end
  local d = math.max(1, l.start + elapsed - now)
  while d > 1 and used(l, d - 1) <= goal do d = d - 1 end
  while used(l, d) > goal do d = d + 1 end
  return d
end

local function look(l, cost)
  local n = used(l, 0)
  if n == 0 then return false, l.units, 0, 0, 0 end
  local refused = n + cost > l.units
  local retry = refused and wait(l, l.units - cost) or 0
  return refused, math.max(0, l.units - n), retry, wait(l, math.min(n, l.units) - 1), wait(l, 0)
end

local function charge(subject)
  local lives = 0
  for _, l in ipairs(subject.limits) do
    call('HSET', subject.key, l.id .. ':start', int(l.start), l.id .. ':current', int(l.current + subject.cost),
      l.id .. ':previous', int(l.previous))
    lives = math.max(lives, l.start + 2 * l.window - now)
  end
  begin(subject.key)
  expire(subject.key, lives)
end

local function settle(subject, _, change)
  for _, l in ipairs(subject.limits) do
    local state = call('HMGET', subject.key, l.id .. ':start', l.id .. ':current', l.id .. ':previous')
    local start = state[1] and tonumber(state[1])
    if start == l.start then
      call('HSET', subject.key, l.id .. ':current', int(math.max(0, tonumber(state[2]) + change)))
    elseif start == l.start + l.window then
      call('HSET', subject.key, l.id .. ':previous', int(math.max(0, tonumber(state[3]) + change)))
    end
  end
end

local function give(subject)
  local given = 0
  for _, l in ipairs(subject.limits) do
    local before = math.min(subject.cost, l.previous)
    local since = math.min(subject.cost - before, l.current)
    if before + since > 0 then
      call('HSET', subject.key, l.id .. ':start', int(l.start), l.id .. ':current', int(l.current - since),
        l.id .. ':previous', int(l.previous - before))
      given = math.max(given, before + since)
    end
  end
  return given
end

return run(read, look, charge, settle, give)
