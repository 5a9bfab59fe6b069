-- gcra.lua: the generic cell rate algorithm. A burst can use all units at once, and further units become free at a
-- constant rate: it admits up to twice the units in one sliding window.
--   time  instant of the last charge   x  the debt at that instant, in microseconds of the limit's rate
-- A call adds cost * window / units to the debt and is admitted if the debt then fits the window; half a microsecond
-- of slack absorbs the rounding.
-- Invariants: the debt never exceeds the window; the key lives until the debt is paid; a clock that went back
-- re-dates the charge to now, once.

-- wait returns the smallest time after which more debt is at most a window's, if no call comes until then: it solves for
-- the time, and corrects the rounding. since is the time from the last charge until now. Calls to math cost more than what
-- they compute.
local function wait(debt, since, more, most)
  local over = debt > since and debt - since + more or more
  if over <= most then return 0 end
  over = over - most
  local d = over - over % 1
  if d < over or d < 1 then d = d + 1 end
  while true do
    local left = debt - (since + d - 1)
    if d == 1 or (left > 0 and left or 0) + more > most then break end
    d = d - 1
  end
  while true do
    local left = debt - (since + d)
    if (left > 0 and left or 0) + more <= most then return d end
    d = d + 1
  end
end

-- COUNT
      if time > now then time, back = now, true end
      local owed, units_added, most = x - (now - time), adds, window + 0.5
      if owed < 0 then owed = 0 end
      if mode == 2 then
        refused, units_added = false, now - instant < window and change or nil -- otherwise it is paid
      elseif mode == 6 and charges then
        given, units_added = math.max(given or 0, math.min(cost, math.ceil(owed * units / window))), -cost
      else
        refused = owed + asked * window / units > most
        if refused and not sure or adds == 0 then units_added = nil end
      end
      if units_added then
        owed = owed + units_added * window / units
        if owed > window then owed = window elseif owed < 0 then owed = 0 end
        time, x = now, owed
        if now + owed > expires then ends = math.max(ends, now + math.max(1, 2 * math.ceil(owed))) end
      end
      if mode ~= 2 then
        remaining, retry, release, reset = (most - owed) * units / window, 0, 0, 0
        remaining = remaining - remaining % 1
        if remaining < 0 then remaining = 0 elseif remaining > units then remaining = units end
        if remaining < units then
          release, reset = wait(x, now - time, (remaining + 1) * window / units, most), wait(x, now - time, units * window / units, most)
          retry = release
          if release < 1 then release = 1 end
          if reset < release then reset = release end
        end
        if not refused then
          retry = 0
        elseif asked ~= remaining + 1 or remaining == units then
          retry = wait(x, now - time, asked * window / units, most)
        end
      end
