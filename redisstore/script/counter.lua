-- counter.lua: the sliding window counter. It is approximate.
--   time  start of the current bucket, a multiple of the window   x  units charged since then
--   y     units charged in the bucket before
-- used = x + ceil(y * (window - elapsed) / window), in double precision and in this order
-- Invariants: the key lives until the end of the bucket after the latest; a clock that went back moves the counts
-- to the bucket of now, once.

-- below reports whether at most a goal counts at a time after the current bucket began.
local function below(goal, at, window, x, y)
  if at < window then return y * (window - at) / window <= goal - x end
  return at >= 2 * window or x * (2 * window - at) / window <= goal
end

-- wait returns the time after which a counter that is above a goal falls to it if no call comes until then: it solves for
-- the time, and corrects the rounding of the division.
local function wait(elapsed, window, x, y, goal)
  local at
  if goal >= x then
    at = (goal - x) * window / y
    at = window - (at - at % 1)
  else
    at = goal * window / x
    at = 2 * window - (at - at % 1)
  end
  if at <= elapsed then at = elapsed + 1 end
  while at > elapsed + 1 and below(goal, at - 1, window, x, y) do at = at - 1 end
  while not below(goal, at, window, x, y) do at = at + 1 end
  return at - elapsed
end

-- COUNT
      if mode == 2 then
        if time == start then
          x = math.max(0, x + change)
        elseif time == start + window then
          y = math.max(0, y + change)
        end
      else
        if time > start then
          back = true
        elseif time == start - window then
          x, y = 0, x
        elseif time < start then
          x, y = 0, 0
        end
        time = start
        if mode == 6 and charges then
          local before = math.min(cost, y)
          local since = math.min(cost - before, x)
          x, y, given = x - since, y - before, math.max(given or 0, before + since)
        end
        local elapsed = now - start
        local used = x
        if y > 0 then used = x + math.ceil(y * (window - elapsed) / window) end
        refused = used + asked > units
        if sure or not refused then x, used = x + adds, used + adds end
        remaining, retry, release, reset = units - used, 0, 0, 0
        if remaining < 0 then remaining = 0 end
        if used > 0 then
          release = wait(elapsed, window, x, y, (used < units and used or units) - 1)
          if refused then retry = asked == 1 and release or wait(elapsed, window, x, y, units - asked) end
          reset = (x > 0 and 2 * window or window) - elapsed
        end
        if start + 2 * window > ends then ends = start + 2 * window end
      end
