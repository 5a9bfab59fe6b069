-- gcra.lua: the generic cell rate algorithm, on a hash. A burst can use all units at once, and further units become
-- free at a constant rate: it admits up to twice the units in one sliding window.
--
-- KEYS, ARGV, returns: see shared.lua
-- Fields  <window>:at    instant of the last charge, in microseconds
--         <window>:debt  the debt at that instant, in microseconds of the limit's rate, as a double
--         register       see register.lua
--
-- A call adds cost * window / units to the debt and is admitted if the debt then fits the window; half a
-- microsecond of slack absorbs the rounding.
--
-- Invariants: the debt never exceeds the window; the key lives until the debt is paid; a refusal writes
-- nothing, except that after the clock went back the first call re-dates the charge to now.

local function read(subject)
  for _, l in ipairs(subject.limits) do
    local state = call('HMGET', subject.key, l.id .. ':at', l.id .. ':debt')
    l.at, l.debt = now, 0
    if state[1] then
      l.at, l.debt = tonumber(state[1]), tonumber(state[2])
      if now < l.at then
        call('HSET', subject.key, l.id .. ':at', int(now))
        l.at = now
      end
    end
  end
end

-- owed returns the debt d microseconds from now if no call comes until then.
local function owed(l, d) return math.max(0, l.debt - (now + d - l.at)) end

-- fits reports whether a cost fits d microseconds from now.
local function fits(l, d, cost) return owed(l, d) + cost * l.window / l.units <= l.window + 0.5 end

-- wait returns the smallest d after which a cost fits: it solves for d, and corrects the rounding.
local function wait(l, cost)
  if fits(l, 0, cost) then return 0 end
  local d = math.max(1, math.ceil(owed(l, 0) + cost * l.window / l.units - l.window - 0.5))
  while d > 1 and fits(l, d - 1, cost) do d = d - 1 end
  while not fits(l, d, cost) do d = d + 1 end
  return d
end

local function look(l, cost)
  local remaining = math.floor((l.window + 0.5 - owed(l, 0)) * l.units / l.window)
  remaining = math.max(0, math.min(l.units, remaining))
  local release, reset = 0, 0
  if remaining < l.units then
    release = math.max(1, wait(l, remaining + 1))
    reset = math.max(release, wait(l, l.units))
  end
  local retry = wait(l, cost)
  return retry > 0, remaining, retry, release, reset
end

-- write adds units that were charged at an instant to the debt of every limit whose window still contains it.
local function write(subject, units, at)
  local lives = 1
  for _, l in ipairs(subject.limits) do
    if now - at < l.window then -- otherwise it is paid
      local debt = math.max(0, math.min(owed(l, 0) + units * l.window / l.units, l.window))
      call('HSET', subject.key, l.id .. ':at', int(now), l.id .. ':debt', string.format('%.17g', debt))
      lives = math.max(lives, debt)
    end
  end
  expire(subject.key, lives)
end

local function charge(subject)
  write(subject, subject.cost, now)
  begin(subject.key)
end

local function settle(subject, at, change)
  read(subject)
  write(subject, change, at)
end

-- A unit that is paid in part counts as one that is given back.
local function give(subject)
  local given = 0
  for _, l in ipairs(subject.limits) do
    given = math.max(given, math.min(subject.cost, math.ceil(owed(l, 0) * l.units / l.window)))
  end
  if given > 0 then write(subject, -subject.cost, now) end
  return given
end

return run(read, look, charge, settle, give)
