-- limit.lua: one limit of a request, wherever a script says LIMIT. It sets
--
--   units, window   window in microseconds; of a calendar limit, the longest period
--   start, stop     when the fixed window around the instant begins and, of a calendar limit, ends
--   cut             what is later counts, in a window that slides
--   name            a number that identifies the window

-- LIMIT
      local units, window, start, stop, cut, name
      units, window, at = unpack('>I5I7', request, at)
      if window > 0 then
        name, start, cut = window, instant - instant % window, instant - window
        if cut < 0 then cut = 0 end -- a clock near 1970
      else
        local id, b0, b1, b2, b3
        window, id, b0, b1, b2, b3, at = unpack('>I7I4I7I7I7I7', request, at)
        if instant < b0 or instant >= b3 then return pack('>i8I8', -1, now) end
        name, start, stop = 2^52 + id, b0, b1
        if instant >= b2 then start, stop = b2, b3 elseif instant >= b1 then start, stop = b1, b2 end
        cut = start - 1
      end
