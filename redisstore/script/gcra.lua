-- gcra.lua: the generic cell rate algorithm, on a hash. Units may come all at once and then again at the
-- rate: up to twice the units in one sliding window.
--
-- KEYS, ARGV, returns: see shared.lua
-- Fields  <window>:at    instant of the last charge, in microseconds
--         <window>:debt  what was owed then, in microseconds of the limit's rate, as a double
--
-- A cost adds cost * window / units to the debt and is admitted while the debt fits the window; half a
-- microsecond of slack absorbs the rounding.
--
-- Invariants: the debt never exceeds the window; the key lives until the debt is paid; a refusal writes
-- nothing, except that a clock that went back re-dates the charge to now, once.

local function read(subject)
  for _, l in ipairs(subject.limits) do
    local state = call('HMGET', subject.key, l.id .. ':at', l.id .. ':debt')
    l.debt = 0
    if state[1] then
      local at = tonumber(state[1])
      if now < at then
        call('HSET', subject.key, l.id .. ':at', int(now))
        at = now
      end
      l.debt = math.max(0, tonumber(state[2]) - (now - at))
    end
  end
end

-- fits returns the smallest d after which a cost fits.
local function fits(l, cost)
  return math.max(0, math.ceil(l.debt + cost * l.window / l.units - l.window - 0.5))
end

local function look(l, cost)
  local remaining = math.floor((l.window + 0.5 - l.debt) * l.units / l.window)
  remaining = math.max(0, math.min(l.units, remaining))
  local release, reset = 0, 0
  if remaining < l.units then
    release = math.max(1, fits(l, remaining + 1))
    reset = math.max(release, fits(l, l.units))
  end
  local retry = fits(l, cost)
  return retry > 0, remaining, retry, release, reset
end

local function write(subject, cost)
  local lives = 1
  for _, l in ipairs(subject.limits) do
    local debt = math.max(0, math.min(l.debt + cost * l.window / l.units, l.window))
    call('HSET', subject.key, l.id .. ':at', int(now), l.id .. ':debt', string.format('%.17g', debt))
    lives = math.max(lives, debt)
  end
  return lives
end

local function charge(subject) expire(subject.key, write(subject, subject.cost)) end

local function refund(subject)
  if call('EXISTS', subject.key) == 0 then return end
  read(subject)
  write(subject, -subject.cost)
end

return run(read, look, charge, refund)
