-- log_ahead.lua: the third part of log.lua: a log whose last entries lie ahead of now, which are bookings. It ends the
-- steps that log_grow.lua began.
--
-- Such a log has version 3, and its last hint is the hint of the present: the first position later than the last charge,
-- the sum before it, the time of that charge plus 2^52, and the time of the entry there. No window takes it for its own
-- hint, because such a time is never past.
-- A call that is not booked sees the entries up to now as a log of their own, and its charge is inserted behind them.

  -- entries_from returns an iterator over the time and units of the entries of a log from a position up to another.
  local function entries_from(log, from, to)
    local str, count, i = '', 0, 0
    return function()
      if i == count then
        if from >= to then return nil end
        str, count = log.read(from, math.min(64, to - from))
        from, i = from + count, 0
      end
      i = i + 1
      return struct.unpack('>I7I5', str, i * 12 - 11)
    end
  end

  -- ahead returns a log as of now: {oldest, position, before, last}, where position is the first entry ahead, before
  -- the sum before it, and last the time of the entry before it. It is called when the last entry is later than now.
  -- After a clock that went back it moves what lies ahead; then moved is true, and none if nothing lies ahead any more. After
  -- one that trembles, now is the time of the last charge, and is returned.
  function rare.ahead(key, slots, entries, head, total, oldest, last, keep, now, hinted, clock)
    local call, pack, unpack = redis.call, struct.pack, struct.unpack
    local hint = call('GETRANGE', key, entries - 26, entries - 1)
    local position, before, as_of, since = unpack('>I6I6I7I7', hint)
    as_of = as_of - 2^52
    local log, a = open(key, slots, entries, head, total), {}
    if now < as_of and as_of - now <= STEP_BACK then
      now, clock, a.now = as_of, as_of, as_of
      if last <= now then
        a.oldest, a.position, a.before, a.last, a.none = oldest, head, total, last, true
        return a
      end
    end
    if now < as_of then
      if last <= as_of then
        oldest, head, total = rare.redate(log, key, slots, entries, head, total, oldest, last, keep, now, hinted)
        call('SETRANGE', key, '0', '\2')
        rare.collide(key, slots, entries, last)
        a.oldest, a.position, a.before, a.last, a.moved, a.none = oldest, head, total, now, true, true
        return a
      end
      oldest, position, head, total, before, since =
        rare.move_back(log, key, slots, entries, head, total, oldest, as_of, last, keep, now, hinted)
      last, as_of, a.moved = last - (as_of - now), now, true
      log = open(key, slots, entries, head, total)
    elseif since <= now then
      position = log.search(position, head, now)
      before = log.sum_before(position)
      since = unpack('>I7', (log.read(position, 1)))
    end
    a.oldest, a.position, a.before, a.last, a.since = oldest, position, before, 0, since
    a.head, a.total, a.ends, a.behind = head, total, last, last
    if position > oldest then a.last = unpack('>I7', (log.read(position - 1, 1))) end

    -- fewest returns the least that remains of the units in a window that ends at a booking and would contain a charge
    -- of now, given where the window that ends now begins. It returns nothing if that takes too many steps.
    local function fewest(units, window, begin, sum_begin)
      local least, sum, steps = units, before, WALK_AHEAD
      local next_old = entries_from(log, begin, position)
      local old, old_units = next_old()
      for time, u in entries_from(log, position, head) do
        if time >= now + window then return least end
        steps, sum = steps - 1, sum + u
        while old and old <= time - window do
          steps, sum_begin = steps - 1, sum_begin + old_units
          old, old_units = next_old()
        end
        if steps < 0 then return nil end
        least = math.min(least, units - (sum - sum_begin) % SUM_MODULUS)
      end
      return least
    end

    -- look returns what log.lua computes for a limit: what remains is the most that a call of now is admitted with, and
    -- the times are those behind all bookings. It adds to behind, the instant from which on every limit has room there.
    -- begin and sum_begin are where the window that ends now begins; stop is the end of a calendar period, or nil, whose
    -- boundaries end in the request at an offset. It returns nothing, and an instant, if those around that are needed.
    function a.look(begin, sum_begin, units, window, stop, cost, offset)
      local remaining, cut, far = units - (before - sum_begin) % SUM_MODULUS, last - window, nil
      if stop then
        remaining = units - (log.sum_before(log.search(position, head, stop - 1)) - sum_begin) % SUM_MODULUS
        local b0, b1, b2, b3 = unpack('>I7I7I7I7', ARGV[1], offset - 28)
        if last < b1 then cut, far = b0 - 1, b1
        elseif last < b2 then cut, far = b1 - 1, b2
        elseif last < b3 then cut, far = b2 - 1, b3
        elseif now >= b1 then
          return nil, now < b2 and b2 or b3
        else -- a calendar hour, as no booking is two days ahead: they follow each other
          far = last + 1 + (b3 - last - 1) % 3600000000
          cut = far - 3600000001
        end
      else
        remaining = math.min(remaining, fewest(units, window, begin, sum_begin) or 0)
      end
      local first = log.search(begin, head, cut)
      local sum_first = log.sum_before(first)
      local left = units - (total - sum_first) % SUM_MODULUS

      -- earliest returns the first instant behind all bookings at which so many units fit.
      local function earliest(fit)
        if fit <= left then return last end
        return far or log.departure(first, sum_first, fit - left) + window
      end
      local retry, release = 0, 0
      a.behind = math.max(a.behind, earliest(math.min(cost, units))) -- a penalty may cost more
      if cost > remaining then retry = a.behind - now end
      remaining = math.max(0, remaining)
      if remaining < units then release = earliest(remaining + 1) - now end
      return remaining, retry, release, (far or last + window) - now
    end

    -- charge inserts an entry at a place, the first position ahead, or changes the one before it, and writes the header.
    -- hints are those of the limits of the call, needed the first position that one counts from, and kept is keep as it
    -- is written.
    function a.charge(place, units, added, hints, limits, needed, kept, keep_units, mode, marked, expires, from)
      local inserts, size, void, keep = place == position, slots, false, kept % 2^50
      if inserts and head % BLOCK == 0 then
        local offset = entries + slots * 12 + 6 * (math.floor(oldest / BLOCK) % (math.ceil(slots / BLOCK) + 1))
        if (total - unpack('>I6', call('GETRANGE', key, offset, offset + 5))) % SUM_MODULUS > MOST_SUM then
          oldest, void = rare.saturate(log, key, slots, entries, head, total, oldest), true
        end
      end
      if inserts and head - oldest == slots then
        if needed <= oldest then
          local grow, gone
          grow, oldest, gone = rare.make_room(mode == 1 and log, key, slots, entries, head, total, oldest, clock, keep,
            total + added, keep_units, from, limits)
          if grow then size = rare.larger(slots, keep_units) end
          void = void or gone
        end
        if size == slots and head - oldest == slots then oldest = oldest + 1 end
      end
      if mode == 3 then marked = 128 end
      if expires < last + keep then expires = last + 2 * keep end
      if size > slots or hinted <= limits then
        local h = math.max(hinted, limits + 1)
        local cold = pack('>I1I1I4I6I7I6I7', 3, h + marked, size, oldest, kept, keep_units, expires)
        rare.widen(key, slots, entries, head, total, oldest, cold, size, h, clock)
        entries, slots, hinted = 51 + 26 * h, size, h
      end

      local tail, to = rare.unroll(key, entries, slots, 12, position, head), head
      local entry = pack('>I7I5', now, units)
      if inserts then
        to = head + 1
        rare.put(key, entry .. tail, entries, slots, 12, position)
      else
        rare.put(key, entry, entries, slots, 12, place)
      end
      local sums, blocks = entries + slots * 12, math.ceil(slots / BLOCK) + 1
      for block = math.floor(place / BLOCK) + 1, math.ceil(to / BLOCK) - 1 do
        local sum, offset = total, sums + 6 * (block % blocks)
        if block * BLOCK < head then sum = unpack('>I6', call('GETRANGE', key, offset, offset + 5)) end
        if inserts then sum = sum - unpack('>I5', tail, (block * BLOCK - 1 - position) * 12 + 8) end
        call('SETRANGE', key, offset, pack('>I6', (sum + added) % SUM_MODULUS))
      end

      local nothing = pack('>I6I6I7I7', 0, 0, 2^53 - 1, 0)
      if void then hints = string.rep(nothing, limits) end
      call('SETRANGE', key, '0', pack('>I1I1I4I6I7I6I7', 3, hinted + marked, slots, oldest, kept, keep_units, expires)
        .. pack('>I6I6I7', to, (total + added) % SUM_MODULUS, last) .. hints .. string.rep(nothing, hinted - 1 - limits)
        .. pack('>I6I6I7I7', position + to - head, (before + added) % SUM_MODULUS, 2^52 + clock, since))
      call('PEXPIRE', key, math.ceil((expires - clock) / 1000))
    end

    a.log = log
    return a
  end

  -- earliest returns the first instant from one on at which a call fits and delays no booking, or nothing if that takes too
  -- many steps, and the instant that its calendar boundaries do not surround. limits have units and a window, or the boundaries
  -- of a calendar. Seen from an instant on, the use of a window rises at each booking and falls where an entry leaves it: it
  -- looks at these instants in their order, WALK_GAPS of them. A period has room at each of its instants, or at none.
  function rare.earliest(log, oldest, head, cost, limits, from)
    local t, at, longest, position = from, nil, 0, log.search(oldest, head, from)
    local before, bookings = log.sum_before(position), entries_from(log, position, head)
    for _, limit in ipairs(limits) do
      limit.ends = 0
      if limit.window then
        local begin = log.search(oldest, position, t - limit.window)
        limit.next, limit.used = entries_from(log, begin, head), (before - log.sum_before(begin)) % SUM_MODULUS
        limit.time, limit.leave = limit.next()
        longest = math.max(longest, limit.window)
      end
    end
    local time, units = bookings()
    for _ = 0, WALK_GAPS do
      local full, next = false, time
      for _, limit in ipairs(limits) do
        if limit.window then
          full = full or limit.used + cost > limit.units and not (at and t >= at + limit.window)
        elseif t < limit[1] or t >= limit[4] then
          if not at then return nil, t end
          limit.full = false -- which only says when to look again
        elseif t >= limit.ends then
          local period = t < limit[2] and 1 or t < limit[3] and 2 or 3
          limit.ends = limit[period + 1]
          local first, behind = log.search(oldest, head, limit[period] - 1), log.search(oldest, head, limit.ends - 1)
          limit.full = (log.sum_before(behind) - log.sum_before(first)) % SUM_MODULUS + cost > limit.units
        end
        full = full or limit.full and not at
        local leaves = limit.time and limit.time + limit.window or limit.full and limit.ends
        if leaves and (not next or leaves < next) then next = leaves end
      end
      if full then at = nil elseif not at then at = t end
      if at and (not time or t >= at + longest) then return at end
      t = next
      for _, limit in ipairs(limits) do
        while limit.time and (not time or limit.time < time) and limit.time + limit.window <= t do
          limit.used = limit.used - limit.leave
          limit.time, limit.leave = limit.next()
        end
        if time == t and limit.window then limit.used = limit.used + units end
      end
      if time == t then time, units = bookings() end
    end
  end

  -- move_back is redate for a log with bookings ahead. Charges later than now become one charge of now, and bookings move
  -- back as far as the clock did. It returns the resulting oldest position, first position ahead, head and total, and the
  -- sum before the first position ahead and its time.
  function rare.move_back(log, key, slots, entries, head, total, oldest, as_of, last, keep, now, hinted)
    local call, pack, unpack = redis.call, struct.pack, struct.unpack
    oldest = log.search(oldest, head, as_of - keep)
    local first = log.search(oldest, head, now - 1)
    local booked = log.search(first, head, as_of)
    local before = log.sum_before(first)
    local units = math.min((log.sum_before(booked) - before) % SUM_MODULUS, MOST_OF_ENTRY) -- an entry holds no more
    local position, sum, items = first, before, {}
    local sums, blocks, changed = entries + slots * 12, math.ceil(slots / BLOCK) + 1, {}
    local function add(time, units)
      if position % BLOCK == 0 then changed[position / BLOCK] = sum % SUM_MODULUS end
      items[#items + 1] = pack('>I7I5', time, units)
      position, sum = position + 1, sum + units
    end
    if booked > first then add(now, units) end
    local ahead, sum_ahead, since = position, sum % SUM_MODULUS, nil
    local tail = rare.unroll(key, entries, slots, 12, booked, head)
    for offset = 1, #tail, 12 do
      local time, u = unpack('>I7I5', tail, offset)
      time = time - (as_of - now)
      since = since or time
      add(time, u)
    end
    rare.put(key, table.concat(items), entries, slots, 12, first)
    for block, before in pairs(changed) do
      call('SETRANGE', key, sums + 6 * (block % blocks), pack('>I6', before))
    end
    head, total = position, sum % SUM_MODULUS
    call('SETRANGE', key, '6', pack('>I6', oldest))
    call('SETRANGE', key, '32', pack('>I6I6I7', head, total, last - (as_of - now))
      .. string.rep(pack('>I6I6I7I7', 0, 0, 2^53 - 1, 0), hinted - 1) .. pack('>I6I6I7I7', ahead, sum_ahead, 2^52 + now, since))
    rare.collide(key, slots, entries, last)
    rare.reborn(key, slots, entries, now)
    return oldest, ahead, head, total, sum_ahead, since
  end

  -- collide records that a clock that went back has moved entries up to a time, so that bookings may now be at their old times.
  function rare.collide(key, slots, entries, last)
    local call, offset = redis.call, entries + slots * 12 + 6 * (math.ceil(slots / BLOCK) + 1)
    local moved = struct.unpack('>I7', call('GETRANGE', key, offset, offset + 6))
    call('SETRANGE', key, offset, struct.pack('>I7', 2^52 + math.max(moved % 2^52, last)))
  end

  -- widen writes the value anew with the same entries, in a ring of size slots, and room for more hints: those of
  -- limits keep their places, and that of the present is not written.
  function rare.widen(key, slots, entries, head, total, oldest, cold, size, hints, now)
    local pack, unpack = struct.pack, struct.unpack
    local offset = entries + (head - 1) % slots * 12
    local newest = redis.call('GETRANGE', key, offset, offset + 11)
    local header = cold .. redis.call('GETRANGE', key, '32', entries - 1)
    header = header .. string.rep(pack('>I6I6I7I7', 0, 0, 2^53 - 1, 0), hints - (entries - 51) / 26)
    local lives = math.ceil((unpack('>I7', cold, 26) - now) / 1000)
    rare.rewrite(key, slots, entries, head, total, oldest, header, size, head - 1, newest, lives)
  end

  -- wait sets the retry times in the n numbers of answers for the limits that refuse, by their bits, while bookings lie ahead.
  -- Each gets the time until all limits have room behind the bookings, at least the time given. It returns the answers.
  function rare.wait(answers, n, refusals, wait)
    for i = 2, n, 4 do wait = math.max(wait, answers[i]) end
    for i = 2, n, 4 do
      answers[i] = refusals % 2 == 1 and wait or 0
      refusals = math.floor(refusals / 2)
    end
    return answers
  end

  -- mark writes down that entries of a log lie ahead, after a booking at an instant: {key, limits, position, before,
  -- since}, where position is the first entry ahead, before the sum before it, and since its time if entries were ahead
  -- before. If none were there are no gaps.
  function rare.mark(log, clock, booked)
    local call, pack, unpack, key = redis.call, struct.pack, struct.unpack, log.key
    if call('GETRANGE', key, '0', '0') == '\4' then open(key).ring(log.limits + 1, clock) end
    local version, hinted, slots, first, keep, keep_units, expires, head, total =
      unpack('>I1I1I4I6I7I6I7I6I6', call('GETRANGE', key, '0', '50'))
    local marked = hinted - hinted % 128
    hinted = hinted % 128
    if hinted <= log.limits then
      local oldest, hints = math.max(first, head - slots), log.limits + 1
      local cold = pack('>I1I1I4I6I7I6I7', 3, hints + marked, slots, oldest, keep, keep_units, expires)
      rare.widen(key, slots, 51 + 26 * hinted, head, total, oldest, cold, slots, hints, clock)
      hinted = hints
    elseif version ~= 3 then
      call('SETRANGE', key, '0', '\3')
    end
    if not log.since and keep_units >= 2^47 then call('SETRANGE', key, '19', pack('>I6', keep_units - 2^47)) end
    call('SETRANGE', key, 25 + 26 * hinted, pack('>I6I6I7I7', log.position, log.before, 2^52 + clock, math.min(log.since or booked, booked)))
  end

  return rare
end
