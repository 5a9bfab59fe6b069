-- log_grow.lua: the second part of log.lua. It changes more of the value than an entry and the header: after a
-- clock that went back, and when the ring is full. The functions capture nothing. log_ahead.lua goes on with them.

-- steps returns the steps that few calls take: after a clock that went back, and when the value grows.
local function steps()
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

  -- make_room gives up the oldest entry of a full ring: if it left the longest window at cut; if newer entries hold
  -- more than most units, where refused calls are charged, which is when a log is given, and units is the total with
  -- this charge; and if the ring has its full size, by adding it to the next entry. It returns whether the ring must
  -- grow instead, and whether hints may name what went.
  function rare.make_room(key, slots, entries, oldest, cut, log, units, most)
    local call, pack, unpack = redis.call, struct.pack, struct.unpack
    local offset = entries + oldest % slots * 12
    local time, u = unpack('>I7I5', call('GETRANGE', key, offset, offset + 11))
    if time <= cut then return false, false end
    if log and (units - log.sum_before(oldest) - u) % SUM_MODULUS > most % 2^47 then return false, true end
    if slots < MOST_ENTRIES then return true, false end
    -- No sum that is still used lies between the two.
    offset = entries + (oldest + 1) % slots * 12 + 7
    local next = unpack('>I5', call('GETRANGE', key, offset, offset + 4))
    call('SETRANGE', key, offset, pack('>I5', math.min(next + u, MOST_OF_ENTRY)))
    return false, true
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

  -- larger returns the slots of a ring that has count entries, and is for more: room for half as many again.
  function rare.larger(count, keep_units)
    local size = math.min(count + math.ceil(count / 2) + 1, MOST_ENTRIES)
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
