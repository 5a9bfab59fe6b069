-- log_search.lua: the first part of log.lua. It finds entries where a hint does not. The function captures nothing.

-- open returns functions over the entries of a log.
local function open(key, slots, entries, head, total)
  local call, unpack = redis.call, struct.unpack
  local log = {}

  -- read returns up to count entries from a position on, cut at the ring's end.
  function log.read(position, count)
    local slot = position % slots
    count = math.min(count, slots - slot, head - position)
    return call('GETRANGE', key, entries + slot * 12, entries + (slot + count) * 12 - 1), count
  end

  -- sum_before returns the units of all entries before a position: the sum at the end of its block
  -- less the entries in between. (Older entries of the block may be gone.)
  function log.sum_before(position)
    local block = math.floor(position / BLOCK) + 1
    local stop, sum = block * BLOCK, total
    if stop >= head then
      stop = head
    else
      local offset = entries + slots * 12 + 6 * (block % (math.ceil(slots / BLOCK) + 1))
      sum = unpack('>I6', call('GETRANGE', key, offset, offset + 5))
    end
    while position < stop do
      local str, count = log.read(position, stop - position)
      for i = 0, count - 1 do sum = sum - unpack('>I5', str, i * 12 + 8) end
      position = position + count
    end
    return sum % SUM_MODULUS
  end

  -- search returns the first position in [from, to) whose entry is later than cut, or to.
  function log.search(from, to, cut)
    while from < to do
      local mid = math.floor((from + to) / 2)
      if unpack('>I7', (log.read(mid, 1))) > cut then to = mid else from = mid + 1 end
    end
    return from
  end

  -- departure returns the time of the entry with which units have left, counted from a position on, and its
  -- position. It looks at the next LOOK_NEAR entries, and then into the block that the sums point to.
  function log.departure(position, before, units)
    local left, stop = units, math.min(position + LOOK_NEAR, head)
    for look = 1, 2 do
      while position < stop do
        local str, count = log.read(position, stop - position)
        for i = 0, count - 1 do
          local time, u = unpack('>I7I5', str, i * 12 + 1)
          left = left - u
          if left <= 0 then return time, position + i end
        end
        position = position + count
      end
      if look == 1 then
        local low, high = math.floor(position / BLOCK) + 1, math.floor((head - 1) / BLOCK) + 1
        while low < high do
          local mid = math.floor((low + high) / 2)
          if (log.sum_before(mid * BLOCK) - before) % SUM_MODULUS >= units then high = mid else low = mid + 1 end
        end
        position, stop = math.max(position, (low - 1) * BLOCK), math.min(low * BLOCK, head)
        left = units - (log.sum_before(position) - before) % SUM_MODULUS
      end
    end
  end

  -- locate returns the first position that counts after cut, the sum before it and its time.
  function log.locate(oldest, cut)
    local position = log.search(oldest, head, cut)
    local before = log.sum_before(position)
    if before == total then return head, total, 0 end
    -- Entries that were settled with no units do not count; there can be thousands of them.
    local time, first = log.departure(position, before, 1)
    return first, before, time
  end

  -- ring writes a packed log anew as a ring, with room for half as many entries again, and so many hints, which are
  -- void. The entries keep their positions. It returns the slots, or nothing if the value is no packed log.
  function log.ring(hints, now)
    local pack, rep, value, marked = struct.pack, string.rep, call('GETRANGE', key, '0', '-1'), 0
    if #value == 33 then value = value .. '\0' .. string.sub(value, 29) end -- the total of one entry
    if #value < 39 or #value % 12 ~= 3 then return nil end
    local _, keep, keep_units, born = unpack('>I1I7I6I7', value)
    if keep_units >= 2^47 then keep_units, marked = keep_units - 2^47, 128 end
    local last, _, total = unpack('>I7I5I6', value, #value - 17)
    local count, expires = (#value - 27) / 12, last + 2 * (keep % 2^50)
    local slots = count + math.ceil(count / 2)
    call('SET', key, pack('>I1I1I4I6I7I6I7', 2, hints + marked, slots, 0, keep, keep_units, expires)
      .. pack('>I6I6I7', count, total, last) .. rep(pack('>I6I6I7I7', 0, 0, 2^53 - 1, 0), hints)
      .. string.sub(value, 22, -7) .. rep('\0', 12 * (slots - count) + 6 * (math.ceil(slots / BLOCK) + 1) + 7)
      .. pack('>I7I7', born, 0), 'PX', math.max(1, math.ceil((expires - now) / 1000)))
    return slots
  end

  return log
end
