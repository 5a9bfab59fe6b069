-- counter.lua: the sliding window counter. It is approximate.
--   time  start of the current bucket, a multiple of the window   x  units charged since then
--   y     units charged in the bucket before
-- used = x + ceil(y * (window - elapsed) / window), in double precision and in this order
-- Invariants: the key lives until the end of the bucket after the latest; a clock that went back moves the counts
-- to the bucket of now, once.

-- wait returns the smallest time after which a counter falls to a goal if no call comes until then: it solves for the time
-- elapsed, and corrects the rounding of the division.
local function wait(elapsed, window, x, y, goal)
  local function used(d)
    local at = elapsed + d
    if at < window then return x + math.ceil(y * (window - at) / window) end
    if at < 2 * window then return math.ceil(x * (2 * window - at) / window) end
    return 0
  end
  if used(0) <= goal then return 0 end
  local d
  if goal >= x then
    d = window - math.floor((goal - x) * window / y) - elapsed
  else
    d = 2 * window - math.floor(goal * window / x) - elapsed
  end
  if d < 1 then d = 1 end
  while d > 1 and used(d - 1) <= goal do d = d - 1 end
  while used(d) > goal do d = d + 1 end
  return d
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
        local used = x + math.ceil(y * (window - elapsed) / window)
        refused = used + asked > units
        if sure or not refused then x, used = x + adds, used + adds end
        remaining, retry, release, reset = units - used, 0, 0, 0
        if remaining < 0 then remaining = 0 end
        if used > 0 then
          if refused then retry = wait(elapsed, window, x, y, units - asked) end
          release = wait(elapsed, window, x, y, math.min(used, units) - 1)
          reset = (x > 0 and 2 * window or window) - elapsed
        end
        ends = math.max(ends, start + 2 * window)
      end
