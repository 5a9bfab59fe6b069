-- log.lua: one decision on a compact sliding log, over one or more subjects, all or nothing.
-- Serves sliding-log (resolution 1) and sliding-buckets (resolution above 1).
--
-- KEYS     one log per subject
-- ARGV     1: the request, packed big-endian
--             I1 1 to charge refused calls too, 3 when the charge may be settled later   I7 resolution in
--             microseconds
--             per subject: I5 cost (0 only looks)   I1 number of limits
--               per limit: I5 units   I7 window in microseconds
--               a calendar limit has window 0, then I7 longest period, I4 its identity, and
--               I7 x 4 boundaries around now
-- Returns  packed: i8 refusals  I8 now, then per limit I8 remaining, retry, release, reset
--          remaining is never negative; retry: until this call fits; release: until remaining grows;
--          reset: until nothing is in use; 0 where there is nothing to wait for.
--          Bit i of refusals is set when limit i refused, and bit 40 when a charge that may be settled could
--          make room before that. Refusals are -1, and nothing was decided, when the
--          boundaries of a calendar limit do not surround the server's time. Times in microseconds.
--
-- The value is one string: cold header, hot header, hints, ring of entries, ring of sums.
--   cold   I1 version  I1 hints, and 128 once a charge may be settled  I4 slots  I6 first valid position  I7 keep  I6 keep units  I7 expires
--   hot    I6 head  I6 total  I7 time of the last entry
--   hint   I6 position  I6 sum before it  I7 as of  I7 time of the entry there
--   entry  I7 time  I5 units              position p is in slot p % slots
--   sum    I6 units before position 64 b  in slot b % (slots / 64, rounded up, + 1)
-- Positions count entries since the key was made. Sums are modulo 2^48: only differences are used.
-- A hint is believed when nothing before its position can count (as of <= cut); else the log is
-- searched. So calls may bring any limits in any order.
--
-- Invariants
--   Entry times rise strictly. Units inside `keep`, the longest window ever asked for, stay. Where
--   refused calls are charged too, they may go when newer entries hold more than `keep units`, the most
--   ever asked for: what goes cannot matter then. The oldest entry of a log of 100,000 joins the next
--   and counts as long as that. No limit needs more entries, unless many were given back.
--   A refusal writes nothing. The first write of a call is one that Redis may refuse for memory.
--   The exception to both: a clock that went back re-dates the entries later than now to now, once.
--   The key always has an expiry, at least `keep` after the last entry.

local call, pack, unpack = redis.call, struct.pack, struct.unpack

-- The rare paths, over the ring as it stands. A function that captures nothing costs the common
-- path almost nothing; one that captured the locals below would cost it a microsecond.
local function rare(key, slots, entries, head, total)
  local call, unpack, floor = redis.call, struct.unpack, math.floor
  local r = {}

  -- read returns up to len entries from position p on, cut at the ring's end.
  function r.read(p, len)
    local slot = p % slots
    len = math.min(len, slots - slot, head - p)
    return call('GETRANGE', key, entries + slot * 12, entries + (slot + len) * 12 - 1), len
  end

  -- sum_before returns the units of all entries before position p: the sum at the end of its block
  -- less the entries in between. (Older entries of the block may be gone.)
  function r.sum_before(p)
    local b = math.floor(p / 64) + 1
    local stop, sum = b * 64, total
    if stop >= head then
      stop = head
    else
      local o = entries + slots * 12 + 6 * (b % (math.ceil(slots / 64) + 1))
      sum = unpack('>I6', call('GETRANGE', key, o, o + 5))
    end
    while p < stop do
      local str, len = r.read(p, stop - p)
      for i = 0, len - 1 do sum = sum - unpack('>I5', str, i * 12 + 8) end
      p = p + len
    end
    return sum % 281474976710656
  end

  -- search returns the first position in [x, y) whose entry is later than cut, or y.
  function r.search(x, y, cut)
    while x < y do
      local mid = math.floor((x + y) / 2)
      if unpack('>I7', (r.read(mid, 1))) > cut then y = mid else x = mid + 1 end
    end
    return x
  end

  -- locate returns the first position that counts after cut, the sum before it and its time.
  function r.locate(lo, cut)
    local p = r.search(lo, head, cut)
    local sum = r.sum_before(p)
    if sum == total then return head, total, 0 end
    -- Entries that were settled with nothing do not count; there can be thousands of them.
    local t, first = r.departure(p, sum, 1)
    return first, sum, t
  end

  -- departure returns the time of the entry with which `units` are gone, counted from p on, and its position.
  function r.departure(p, sum, units)
    local left, stop = units, math.min(p + 8, head)
    local function walk()
      while p < stop do
        local str, len = r.read(p, stop - p)
        for i = 0, len - 1 do
          local t, u = unpack('>I7I5', str, i * 12 + 1)
          left = left - u
          if left <= 0 then return t, p + i end
        end
        p = p + len
      end
    end
    local t, found = walk()
    if t then return t, found end
    local b, top = math.floor(p / 64) + 1, math.floor((head - 1) / 64) + 1
    while b < top do
      local mid = math.floor((b + top) / 2)
      if (r.sum_before(mid * 64) - sum) % 281474976710656 >= units then top = mid else b = mid + 1 end
    end
    p, stop = math.max(p, (b - 1) * 64), math.min(b * 64, head)
    left = units - (r.sum_before(p) - sum) % 281474976710656
    return walk()
  end

  return r
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local request, subjects = ARGV[1], #KEYS
local always, resolution = unpack('>I1I7', request)
local reserves, loose = always == 3, 0
always = always == 1

-- One subject is decided and charged in pass 2. Several are looked at in pass 1, and charged in pass
-- 2 when all have room. Where refused calls are charged too, pass 3 looks at what that left.
local admitted, refused, mask, bit, at, refusals, pass = '', '', 0, 1, 9, 0, 1
if subjects == 1 and not always then pass = 2 end

while pass do
  for s = 1, subjects do
    local key, cost, k = KEYS[s]
    cost, k, at = unpack('>I5I1', request, at)
    local charge, single = cost > 0 and pass == 2, subjects == 1 and k == 1 and not always
    local raw = call('GETRANGE', key, '0', k == 1 and '76' or k == 2 and '102' or 50 + 26 * k)
    local hinted, slots, first, keep, keep_units, expires, head, total, last = k, 0, 0, 0, 0, 0, 0, 0, 0
    if raw ~= '' then
      if #raw < 51 or string.byte(raw) ~= 1 then
        return redis.error_reply('SASH the key ' .. key .. ' holds something that is not a log of this version')
      end
      hinted, slots, first, keep, keep_units, expires, head, total, last = unpack('>I1I4I6I7I6I7I6I6I7', raw, 2)
      if hinted > 127 then hinted, loose = hinted - 128, 1099511627776 end
    end
    local entries, lo, r = 51 + 26 * hinted, head - slots, nil
    if lo < first then lo = first end

    if now < last and head > lo then
      -- The clock went back. What is later than now leaves together, so it becomes one entry of now.
      -- What had left the longest window by the last charge stays gone.
      r = rare(key, slots, entries, head, total)
      lo = r.search(lo, head, last - keep)
      local p = r.search(lo, head, now - 1)
      local before = r.sum_before(p)
      local units = math.min((total - before) % 281474976710656, 1099511627775) -- an entry holds no more
      total = (before + units) % 281474976710656
      call('SETRANGE', key, entries + p % slots * 12, pack('>I7I5', now, units))
      call('SETRANGE', key, '6', pack('>I6', lo)) -- the slots before it hold nothing of use
      call('SETRANGE', key, '32', pack('>I6I6I7', p + 1, total, now)
        .. string.rep(pack('>I6I6I7I7', 0, 0, last + keep, 0), hinted))
      raw = call('GETRANGE', key, '0', 50 + 26 * k)
      head, last, r = p + 1, now, nil
    end

    -- The entry that this call would write: at the head, or joined with the last one when that is of
    -- the same step of the resolution. Entries are never joined across a calendar boundary.
    local target, joined = head, cost
    if now == last or resolution > 1 and math.floor(now / resolution) == math.floor(last / resolution) then
      if charge and head > lo then
        local o, joins = at, true
        for i = 1, k do
          local _, window, b0, b1, b2
          _, window, o = unpack('>I5I7', request, o)
          if window == 0 then
            _, _, b0, b1, b2, _, o = unpack('>I7I4I7I7I7I7', request, o)
            if last < b0 or last < b1 and now >= b1 or last < b2 and now >= b2 then joins = false end
          end
        end
        if joins then
          o = entries + (head - 1) % slots * 12
          joined = cost + unpack('>I5', call('GETRANGE', key, o + 7, o + 11))
          if joined < 1099511627776 then target = head - 1 else joined = cost end
        end
      end
    end

    local known_keep, known_units, spare, hints, room, moved = keep, keep_units, lo, '', true, k > hinted
    for i = 1, k do
      local units, window, cut, stop
      units, window, at = unpack('>I5I7', request, at)
      if window > 0 then
        cut = now - window
      else
        local _, b0, b1, b2, b3
        window, _, b0, b1, b2, b3, at = unpack('>I7I4I7I7I7I7', request, at)
        if now < b0 or now >= b3 then return pack('>i8I8', -1, now) end
        if now < b1 then cut, stop = b0 - 1, b1 elseif now < b2 then cut, stop = b1 - 1, b2 else cut, stop = b2 - 1, b3 end
      end
      if units > keep_units then keep_units = units end
      if window > keep then keep = window end

      -- The first position that counts, the sum before it and its time.
      local p, sum, as_of, t = head, total, cut, 0
      if last > cut then
        p = nil
        if i <= hinted then
          p, sum, as_of, t = unpack('>I6I6I7I7', raw, 26 + 26 * i)
          if as_of > cut or p < lo or p >= head then
            p = nil
          elseif t <= cut then
            -- Some have left since: walk over 8 entries, and then over 64, before searching.
            local few, str, o, u = 8, '', 1, nil
            as_of, moved = cut, true
            while t <= cut or u == 0 do
              if u then p, sum = p + 1, sum + u end
              if o > #str then
                if few > 64 or p == head then p = nil break end
                local slot, len = p % slots, few
                if len > slots - slot then len = slots - slot end
                if len > head - p then len = head - p end
                str = call('GETRANGE', key, string.format('%d', entries + slot * 12), string.format('%d', entries + (slot + len) * 12 - 1))
                o, few = 1, few * 8
              end
              t, u, o = unpack('>I7I5', str, o)
            end
            sum = sum % 281474976710656
          end
        end
        if not p then
          r = r or rare(key, slots, entries, head, total)
          p, sum, t = r.locate(lo, cut)
          as_of, moved = cut, true
        end
      end
      if window == keep and not stop then spare = p end

      local free, retry, release, reset = units - (total - sum) % 281474976710656, 0, 0, 0
      if p < head then
        if stop then
          release, reset = stop - now, stop - now
        else
          release, reset = t + window - now, last + window - now
        end
      end
      if cost > free then
        mask, room, retry = mask + bit, false, release
        if not stop and cost - free > 1 then
          r = r or rare(key, slots, entries, head, total)
          retry = r.departure(p, sum, cost - free) + window - now
        end
      end
      if free < 0 then
        if not stop then
          r = r or rare(key, slots, entries, head, total)
          release = r.departure(p, sum, 1 - free) + window - now
        end
        free = 0
      end
      -- What the limit says if the call is refused, and if it is charged; one limit alone knows already.
      if not single then
        refused, bit = refused .. pack('>I8I8I8I8', free, retry, release, reset), bit * 2
      end
      if cost > 0 and cost <= free then
        free, reset = free - cost, stop and stop - now or window
        if p >= target then release = reset end
      end
      if single then
        if mask > 0 then mask = mask + loose end
        admitted = pack('>i8I8I8I8I8I8', mask, now, free, retry, release, reset)
      else
        admitted = admitted .. pack('>I8I8I8I8', free, retry, release, reset)
      end

      if charge and (room or always) then
        if p >= target then t, moved = now, true end
        if moved then
          if i > 1 and hints == '' then hints = string.sub(raw, 52, 25 + 26 * i) end
          hints = hints .. pack('>I6I6I7I7', p, sum, as_of, t)
        end
      end
    end

    if charge and (room or always) then
      -- A full ring grows, or its oldest entry goes or joins the next.
      local grow = target == head and head - lo == slots and spare <= lo
      if grow and slots > 0 then
        r = r or rare(key, slots, entries, head, total)
        local t, u = unpack('>I7I5', (r.read(lo, 1)))
        local outweighed = always and (total + cost - r.sum_before(lo) - u) % 281474976710656 > keep_units
        if t <= now - keep then
          grow = false
        elseif slots >= 100000 or outweighed then
          grow = false
          if not outweighed then -- no sum that is still used lies between the two
            local o = entries + (lo + 1) % slots * 12 + 7
            local next = unpack('>I5', call('GETRANGE', key, o, o + 4))
            call('SETRANGE', key, o, pack('>I5', math.min(next + u, 1099511627775)))
          end
          hints = string.rep(pack('>I6I6I7I7', 0, 0, now + keep, 0), k) -- they may name what goes
        end
      end

      if target < head and k < hinted then -- the hints of other limits may hold the old time of the entry
        if hints == '' then hints = string.sub(raw, 52, 51 + 26 * k) end
        hints = hints .. string.rep(pack('>I6I6I7I7', 0, 0, now + keep, 0), hinted - k)
      end
      local entry = pack('>I7I5', now, joined)
      local hot = pack('>I6I6I7', target + 1, (total + cost) % 281474976710656, now) .. hints
      if raw ~= '' and not grow and k <= hinted then
        call('SETRANGE', key, string.format('%d', entries + target % slots * 12), entry)
        if target % 64 == 0 and target == head then
          call('SETRANGE', key, entries + slots * 12 + 6 * (target / 64 % (math.ceil(slots / 64) + 1)), pack('>I6', total))
        end
        call('SETRANGE', key, '32', hot)
        if reserves and string.byte(raw, 2) < 128 then call('SETRANGE', key, '1', string.char(hinted + 128)) end
        if expires < now + keep or keep ~= known_keep or keep_units ~= known_units then
          call('PEXPIRE', key, math.ceil(2 * keep / 1000))
          call('SETRANGE', key, '12', pack('>I7I6I7', keep, keep_units, now + 2 * keep))
        end
      else
        -- Write the whole value anew, with a longer ring or room for more hints.
        -- Small rings grow fast, to be rewritten seldom; then by quarters, to take little more than they
        -- need; and then at once to the full size, because copying is what costs.
        local size = slots
        if grow then
          if slots < 64 then size = math.max(4, slots * 4)
          elseif slots < 4096 then size = slots + math.floor(slots / 4)
          else size = 100000 end
          if size > keep_units and keep_units > slots then size = keep_units end
        elseif target == head and head - lo == slots then
          lo = lo + 1
        end
        if #hints < 26 * k then hot = hot .. string.sub(raw, 52, 51 + 26 * k) end
        local marked = (reserves or raw ~= '' and string.byte(raw, 2) > 127) and 128 or 0
        local header = pack('>I1I1I4I6I7I6I7', 1, k + marked, size, lo, keep, keep_units, now + 2 * keep) .. hot
        local value
        if slots == 0 then -- the sum before the first entry is zero, as is what follows
          value = entry .. string.rep('\0\0\0\0\0\0\0\0\0\0\0\0', size)
        else
          local function unroll(base, slots, size, x, y)
            if x >= y then return '' end
            local from, to = x % slots, (y - 1) % slots + 1
            if from < to then return call('GETRANGE', key, base + from * size, base + to * size - 1) end
            return call('GETRANGE', key, base + from * size, base + slots * size - 1)
              .. call('GETRANGE', key, base, base + to * size - 1)
          end
          local b, blocks = math.floor(lo / 64), math.ceil(size / 64) + 1
          local ring = unroll(entries, slots, 12, lo, target)
          local sums = unroll(entries + slots * 12, math.ceil(slots / 64) + 1, 6, b, math.ceil(head / 64))
          if target % 64 == 0 and target == head then sums = sums .. pack('>I6', total) end
          if size <= 128 then
            local function roll(str, slots, size, x)
              local skip = x % slots * size
              local tail = slots * size - skip
              if #str <= tail then return string.rep('\0', skip) .. str .. string.rep('\0', tail - #str) end
              return string.sub(str, tail + 1) .. string.rep('\0', slots * size - #str) .. string.sub(str, 1, tail)
            end
            value = roll(ring .. entry, size, 12, lo) .. roll(sums, blocks, 6, b)
          else
            -- Each byte that passes through a string of this script costs a nanosecond, most of it for the
            -- collection of garbage. So the server puts the parts together, in a value of the final length:
            -- a SETRANGE that made an older one longer would take up to twice that.
            local function put(str, base, slots, size, x)
              local from = x % slots * size
              local tail = slots * size - from
              call('SETRANGE', key, base + from, string.sub(str, 1, tail))
              if #str > tail then call('SETRANGE', key, base, string.sub(str, tail + 1)) end
            end
            local len = #header + size * 12 + blocks * 6
            if size <= 8192 then -- SET and not DEL: on a cluster a key that goes while its slot moves is not found again
              call('SET', key, string.rep(string.rep('\0', 64), math.floor(len / 64)) .. string.rep('\0', len % 64))
            else
              call('SETRANGE', key, '0', '\1') -- changes nothing; Redis may refuse it for memory
              call('DEL', key)
              call('SETRANGE', key, len - 1, '\0')
            end
            call('SETRANGE', key, '0', header)
            put(ring, #header, size, 12, lo)
            call('SETRANGE', key, #header + target % size * 12, entry)
            put(sums, #header + size * 12, blocks, 6, b)
            call('PEXPIRE', key, math.ceil(2 * keep / 1000))
          end
        end
        if value then call('SET', key, header .. value, 'PX', math.ceil(2 * keep / 1000)) end
      end
    end
    if single then return admitted end
  end

  if pass < 3 and (pass == 1 or not always) then refusals = mask end
  if pass == 1 and (refusals == 0 or always) then
    pass = 2
  elseif pass == 2 and refusals > 0 and always then
    pass = 3
  else
    break
  end
  admitted, refused, mask, bit, at = '', '', 0, 1, 9
end
if refusals > 0 then return pack('>i8I8', refusals + loose, now) .. refused end
return pack('>i8I8', 0, now) .. admitted
