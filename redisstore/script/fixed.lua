-- fixed.lua: the fixed window. It admits up to twice its units around a boundary.
--   time  start of the latest window with a charge   x  units charged since then
-- Invariants: a window's count only grows, unless a charge is settled or units are given back; the key lives until
-- its latest window ends; a clock that went back moves the count to the window of now, once.

-- COUNT
      stop = stop or start + window
      if mode == 2 then
        if time == start then x = math.max(0, x + change) end
      else
        if time < start then x = 0 elseif time > start then back = true end
        time = start
        if mode == 6 and charges then
          local units_back = math.min(cost, x)
          x, given = x - units_back, math.max(given or 0, units_back)
        end
        refused = x + asked > units
        if sure or not refused then x = x + adds end
        remaining, retry, release = units - x, 0, 0
        if remaining < 0 then remaining = 0 end
        if x > 0 then release = stop - now end
        if refused then retry = stop - now end
        reset = release
        if stop > ends then ends = stop end
      end
