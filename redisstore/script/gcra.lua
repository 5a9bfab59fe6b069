-- gcra.lua: the generic cell rate algorithm. A burst can use all units at once, and further units become free at a
-- constant rate: it admits up to twice the units in one sliding window.
--   time  instant of the last charge   x  the debt at that instant, in microseconds of the limit's rate
-- A call adds cost * window / units to the debt and is admitted if the debt then fits the window; half a microsecond
-- of slack absorbs the rounding.
-- Invariants: the debt never exceeds the window; the key lives until the debt is paid; a clock that went back
-- re-dates the charge to now, once.

-- wait returns the smallest time after which more debt fits the window, if no call comes until then: it solves for the
-- time, and corrects the rounding. since is the time from the last charge until now.
local function wait(debt, since, window, more)
  local most, d = window + 0.5, 0
  if math.max(0, debt - since) + more <= most then return 0 end
  d = math.max(1, math.ceil(math.max(0, debt - since) + more - most))
  while d > 1 and math.max(0, debt - (since + d - 1)) + more <= most do d = d - 1 end
  while math.max(0, debt - (since + d)) + more > most do d = d + 1 end
  return d
end

-- COUNT
      if time > now then time, back = now, true end
      local owed, units_added = math.max(0, x - (now - time)), adds
      if mode == 2 then
        refused, units_added = false, now - instant < window and change or nil -- otherwise it is paid
      elseif mode == 6 and charges then
        given, units_added = math.max(given or 0, math.min(cost, math.ceil(owed * units / window))), -cost
      else
        refused = owed + asked * window / units > window + 0.5
        if refused and not sure or adds == 0 then units_added = nil end
      end
      if units_added then
        owed = math.max(0, math.min(owed + units_added * window / units, window))
        time, x = now, owed
        if now + owed > expires then ends = math.max(ends, now + math.max(1, 2 * math.ceil(owed))) end
      end
      if mode ~= 2 then
        remaining, retry, release, reset = math.floor((window + 0.5 - owed) * units / window), 0, 0, 0
        remaining = math.max(0, math.min(units, remaining))
        if remaining < units then
          release = math.max(1, wait(x, now - time, window, (remaining + 1) * window / units))
          reset = math.max(release, wait(x, now - time, window, units * window / units))
        end
        if refused then retry = wait(x, now - time, window, asked * window / units) end
      end
