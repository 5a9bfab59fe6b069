-- fixed.lua: the fixed window, on a hash. It admits up to twice its units around a boundary.
--
-- KEYS, ARGV, returns: see shared.lua
-- Fields  <window>:start  start of the latest window with a charge, in microseconds
--         <window>:count  units charged since then
--         register        see register.lua
--
-- Invariants: a window's count only grows, unless a charge is settled; the key lives until its latest
-- window ends; a refusal writes nothing, but a clock that went back moves the count to the window of now, once.

local function read(subject)
  for _, l in ipairs(subject.limits) do
    local state = call('HMGET', subject.key, l.id .. ':start', l.id .. ':count')
    l.stop = l.stop or l.start + l.window
    l.count = 0
    if state[1] then
      local start = tonumber(state[1])
      if start >= l.start then l.count = tonumber(state[2]) end
      if start > l.start then
        call('HSET', subject.key, l.id .. ':start', int(l.start), l.id .. ':count', int(l.count))
      end
    end
  end
end

local function look(l, cost)
  local remaining, left = math.max(0, l.units - l.count), l.stop - now
  local release = l.count > 0 and left or 0
  if l.count + cost > l.units then return true, remaining, left, release, release end
  return false, remaining, 0, release, release
end

local function charge(subject)
  local lives = 0
  for _, l in ipairs(subject.limits) do
    call('HSET', subject.key, l.id .. ':start', int(l.start), l.id .. ':count', int(l.count + subject.cost))
    lives = math.max(lives, l.stop - now)
  end
  begin(subject.key)
  expire(subject.key, lives)
end

local function settle(subject, _, change)
  for _, l in ipairs(subject.limits) do
    local state = call('HMGET', subject.key, l.id .. ':start', l.id .. ':count')
    if state[1] and tonumber(state[1]) == l.start then
      call('HSET', subject.key, l.id .. ':count', int(math.max(0, tonumber(state[2]) + change)))
    end
  end
end

local function give(subject)
  local given = 0
  for _, l in ipairs(subject.limits) do
    local units = math.min(subject.cost, l.count)
    if units > 0 then call('HSET', subject.key, l.id .. ':count', int(l.count - units)) end
    given = math.max(given, units)
  end
  return given
end

return run(read, look, charge, settle, give)
