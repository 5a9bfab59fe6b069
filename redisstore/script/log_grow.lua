-- log_grow.lua: the second part of log.lua. It changes more of the value than an entry and the header: after a
-- clock that went back, and when the ring is full. The functions capture nothing. log_ahead.lua goes on with them.

-- steps returns the steps that few calls take: after a clock that went back, and when the value grows. It takes open:
-- capturing it would cost every call.
local function steps(open)
  local rare = {}

  -- redate merges the entries later than now into one of now: they leave together. What had left the longest
  -- window by the last charge stays gone. It returns the oldest position, the head and the total that result.
  function rare.redate(log, key, slots, entries, head, total, oldest, last, keep, now, hinted)
    local call, pack = redis.call, struct.pack
    oldest = log.search(oldest, head, last - keep)
    local position = log.search(oldest, head, now - 1)
    local before = log.sum_before(position)
    local units = math.min((total - before) % SUM_MODULUS, MOST_OF_ENTRY) -- an entry holds no more
    total = (before + units) % SUM_MODULUS
    call('SETRANGE', key, entries + position % slots * 12, pack('>I7I5', now, units))
    call('SETRANGE', key, '6', pack('>I6', oldest)) -- the slots before it hold nothing of use
    call('SETRANGE', key, '32', pack('>I6I6I7', position + 1, total, now)
      .. string.rep(pack('>I6I6I7I7', 0, 0, last + keep, 0), hinted))
    local offset = entries + slots * 12 + 6 * (math.ceil(slots / BLOCK) + 1)
    local moved = struct.unpack('>I7', call('GETRANGE', key, offset, offset + 6))
    call('SETRANGE', key, offset, pack('>I7', moved - moved % 2^52 + math.max(moved % 2^52, last)))
    rare.reborn(key, slots, entries, now)
    return oldest, position + 1, total
  end

  -- reborn keeps the first charge from being later than now, after a clock that went back.
  function rare.reborn(key, slots, entries, now)
    local call, offset = redis.call, entries + slots * 12 + 6 * (math.ceil(slots / BLOCK) + 1) + 7
    if struct.unpack('>I7', call('GETRANGE', key, offset, offset + 6)) > now then
      call('SETRANGE', key, offset, struct.pack('>I7', now))
    end
  end

  -- make_room gives up the oldest entry of a full ring if it left the longest window, holds nothing, or newer entries hold
  -- more than most units, where refused calls are charged, which is when a log is given, and units is the total with this
  -- charge. It merges entries if the ring has its full size. It returns whether the ring must grow, the oldest position, and
  -- whether hints may name what went. The limits of the subject stand at an offset of the request.
  function rare.make_room(log, key, slots, entries, head, total, oldest, clock, keep, units, most, at, limits)
    local unpack = struct.unpack
    local offset = entries + oldest % slots * 12
    local time, u = unpack('>I7I5', redis.call('GETRANGE', key, offset, offset + 11))
    if time <= clock - keep or u == 0 then return false, oldest, false end
    if log and (units - log.sum_before(oldest) - u) % SUM_MODULUS > most % 2^47 then return false, oldest, true end
    if slots < MOST_ENTRIES then return true, oldest, false end
    local cuts = {clock - keep}
    for i = 2, limits + 1 do
      local window, b0, b1, b2, _
      _, window, at = unpack('>I5I7', ARGV[1], at)
      cuts[i] = clock - window
      if window == 0 then
        _, _, b0, b1, b2, _, at = unpack('>I7I4I7I7I7I7', ARGV[1], at)
        cuts[i] = (clock < b1 and b0 or clock < b2 and b1 or b2) - 1
      end
    end
    table.sort(cuts, function(a, b) return a > b end)
    oldest = rare.merge(open(key, slots, entries, head, total), key, slots, entries, head, oldest, clock, cuts)
    return 4 * (head - oldest) >= 3 * slots, oldest, true
  end

  -- merge joins charges that are not later than now and lie within one step of time, in an entry that counts from the latest
  -- of them. So the log never admits more, and holds a unit longer by less than a step. It merges nothing across a cut, so the
  -- windows and periods that begin there hold the same units. Entries without units are dropped. Entries later than now keep
  -- their positions. It returns the oldest position.
  function rare.merge(log, key, slots, entries, head, oldest, now, cuts)
    local call, pack, unpack = redis.call, struct.pack, struct.unpack
    local stop = log.search(oldest, head, now)
    local position, sum, items, sums = stop, log.sum_before(stop), {}, {}
    local cut, from, at, units = 1, 2^53, 0, 0 -- the entry that others join, and from when on they do
    local str = rare.unroll(key, entries, slots, 12, oldest, stop)
    local function add()
      if units == 0 then return end
      position, sum = position - 1, (sum - units) % SUM_MODULUS
      items[stop - position] = pack('>I7I5', at, units)
      if position % BLOCK == 0 then sums[position / BLOCK] = sum end
    end
    for offset = #str - 11, 1, -12 do
      local time, u = unpack('>I7I5', str, offset)
      if time >= from and units + u < MOST_OF_ENTRY then
        units = units + u
      elseif u > 0 then
        add()
        while cut < #cuts and time <= cuts[cut] do cut = cut + 1 end
        from = math.max(time - time % rare.step(now - cuts[cut], now - time), cuts[cut] + 1)
        at, units = time, u
      end
    end
    add()
    sums[math.floor(position / BLOCK)] = sum
    for i = 1, (stop - position) / 2 do
      local j = stop - position + 1 - i
      items[i], items[j] = items[j], items[i]
    end
    rare.put(key, table.concat(items), entries, slots, 12, position)
    for block, before in pairs(sums) do
      call('SETRANGE', key, entries + slots * 12 + 6 * (block % (math.ceil(slots / BLOCK) + 1)), pack('>I6', before))
    end
    call('SETRANGE', key, '6', pack('>I6', position))
    return position
  end

  -- step returns the time within which charges of an age share an entry of a log that merges, seen from a window: the largest
  -- power of two within a part of the window and a part of the age, because other calls may bring shorter windows.
  function rare.step(window, age)
    local _, exponent = math.frexp(math.max(1, math.min(window, 8 * age) / MERGE_STEPS))
    return 2 ^ (exponent - 1)
  end

  -- saturate keeps sums from wrapping. If the entries hold more than half of MOST_SUM, the oldest join the last one
  -- from which on that is so: all together hold more than any limit, before and after, so no answer changes until
  -- units are given back. It returns the oldest position. Hints may name what went.
  function rare.saturate(log, key, slots, entries, head, total, oldest)
    local call, pack = redis.call, struct.pack
    local position, last = oldest, head - 1
    while position < last do
      local mid = math.ceil((position + last) / 2)
      if (total - log.sum_before(mid)) % SUM_MODULUS > MOST_SUM / 2 then position = mid else last = mid - 1 end
    end
    local units = (log.sum_before(position + 1) - log.sum_before(oldest)) % SUM_MODULUS
    local offset = entries + position % slots * 12 + 7
    if position > oldest then call('SETRANGE', key, offset, pack('>I5', math.min(units, MOST_OF_ENTRY))) end
    call('SETRANGE', key, '6', pack('>I6', position))
    return position
  end

  -- larger returns the slots of the ring that replaces one with count entries: half as many again, up to the full
  -- size. A ring of the full size, if merging leaves too many entries, doubles.
  function rare.larger(count, keep_units)
    if count >= MOST_ENTRIES then return 2 * count end
    local size = math.min(count + math.ceil(count / 2), MOST_ENTRIES)
    keep_units = keep_units % 2^47
    if size > keep_units and keep_units > count then size = keep_units end
    return size
  end

  -- unroll returns the items [from, to) of a ring, in order.
  function rare.unroll(key, base, slots, bytes, from, to)
    local call = redis.call
    if from >= to then return '' end
    local x, y = from % slots, (to - 1) % slots + 1
    if x < y then return call('GETRANGE', key, base + x * bytes, base + y * bytes - 1) end
    return call('GETRANGE', key, base + x * bytes, base + slots * bytes - 1)
      .. call('GETRANGE', key, base, base + y * bytes - 1)
  end

  -- put writes items into a ring, from a position on.
  function rare.put(key, items, base, slots, bytes, position)
    local from = position % slots * bytes
    local tail = slots * bytes - from
    redis.call('SETRANGE', key, base + from, string.sub(items, 1, tail))
    if #items > tail then redis.call('SETRANGE', key, base, string.sub(items, tail + 1)) end
  end

  -- rewrite writes the value anew: a header, and a ring of size slots with the entries from oldest up to a
  -- position, a new entry there, the sums of their blocks, and what follows.
  function rare.rewrite(key, slots, entries, head, total, oldest, header, size, position, entry, lives)
    local call, rep, sub = redis.call, string.rep, string.sub
    local block, blocks = math.floor(oldest / BLOCK), math.ceil(size / BLOCK) + 1
    local ring = rare.unroll(key, entries, slots, 12, oldest, position)
    local sums = rare.unroll(key, entries + slots * 12, math.ceil(slots / BLOCK) + 1, 6, block, math.ceil(head / BLOCK))
    if position % BLOCK == 0 and position == head then sums = sums .. struct.pack('>I6', total) end
    local register = call('GETRANGE', key, entries + slots * 12 + 6 * (math.ceil(slots / BLOCK) + 1), '-1')

    if size <= SMALL_RING then
      -- roll returns a ring with items from a position on.
      local function roll(items, slots, bytes, position)
        local skip = position % slots * bytes
        local tail = slots * bytes - skip
        if #items <= tail then return rep('\0', skip) .. items .. rep('\0', tail - #items) end
        return sub(items, tail + 1) .. rep('\0', slots * bytes - #items) .. sub(items, 1, tail)
      end
      ring, sums = roll(ring .. entry, size, 12, oldest), roll(sums, blocks, 6, block)
      call('SET', key, header .. ring .. sums .. register, 'PX', lives)
      return
    end

    -- Each byte that passes through a string of this script costs a nanosecond, most of it for the collection of
    -- garbage. So the server makes the zeros and puts the parts together. A SETRANGE beyond the end reserves twice
    -- the length that results: the first makes half of the value, and the second fills what the first reserved.
    -- SET empties the key; deleting it would break an invariant.
    local length = #header + size * 12 + blocks * 6 + #register
    call('SET', key, '')
    call('SETRANGE', key, math.ceil(length / 2) - 1, '\0')
    call('SETRANGE', key, length - 1, '\0')
    call('SETRANGE', key, '0', header)
    rare.put(key, ring, #header, size, 12, oldest)
    call('SETRANGE', key, #header + position % size * 12, entry)
    rare.put(key, sums, #header + size * 12, blocks, 6, block)
    call('SETRANGE', key, length - #register, register)
    call('PEXPIRE', key, lives)
  end
