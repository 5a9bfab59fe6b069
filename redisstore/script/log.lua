-- log.lua: one decision on a compact sliding log, over one or more subjects, all or nothing.
-- Serves sliding-log (resolution 1) and sliding-buckets (resolution above 1).
--
-- KEYS     one log per subject
-- ARGV     1: the request, packed big-endian
--             I1 mode: 1 to charge refused calls too, 3 when the charge may be settled later, 5 to charge whether or
--                not there is room, also more than a limit: the caller looks for the answer afterwards
--             I7 resolution in microseconds
--             per subject: I5 cost (0 only looks)   I1 number of limits
--               per limit: I5 units   I7 window in microseconds
--               a calendar limit has window 0, then I7 longest period, I4 its identity, and
--               I7 x 4 boundaries around now
-- Returns  packed: i8 refusals  I8 now, then per limit I8 remaining, retry, release, reset
--          remaining is never negative; retry: until this call fits; release: until remaining grows;
--          reset: until nothing is in use; 0 where there is nothing to wait for.
--          Bit i of refusals is set when limit i refused, and bit 40 when a charge that may be settled could
--          make room before that. Refusals are -1, and nothing was decided, when the boundaries of a calendar
--          limit do not surround the server's time, or, with I8 0 at the end, the time that takes its place, which
--          bookings ask for. Times in microseconds.
--
-- The value is one string. A short log is packed: a header, its entries, and their total. A call reads it once and writes
-- it once, with its expiry.
--   packed I1 4  I7 keep, plus 2^50 while every limit so far is of the calendar  I6 keep units, plus 2^47 once a charge
--          may be settled  I7 time of the first charge
--          the entries, the oldest first  I6 total, but of one entry
-- It becomes a ring beyond MOST_PACKED entries, and when more has to be written than a charge (see open in
-- log_search.lua): cold header, hot header, hints, ring of entries, ring of sums, moved, register.
--   cold   I1 2, or 3 with bookings ahead  I1 hints, plus 128 once a charge may be settled  I4 slots  I6 first valid position
--          I7 keep, as in a packed log  I6 keep units, plus 2^47 once bookings may leave gaps  I7 expires
--   hot    I6 head  I6 total  I7 time of the last entry
--   hint   I6 position  I6 sum before it  I7 as of  I7 time of the entry there
--   entry  I7 time  I5 units              position p is in slot p % slots
--   sum    I6 units before position BLOCK * b  in slot b % (slots / BLOCK, rounded up, + 1)
--   moved  I7 the latest time from which a clock that went back has moved entries
--   register  see register.lua
-- Positions count entries since the key was made; the head is the next one. Sums are modulo SUM_MODULUS: only
-- differences are used. Hint i is where the window of limit i began. It is believed when nothing before its position
-- can count (as of <= cut); otherwise the log is searched. So calls may bring any limits in any order.
--
-- Invariants
--   Entry times rise strictly. Units inside `keep`, the longest window of any call so far, stay. Where
--   refused calls are charged too, they may go when newer entries hold more than `keep units`, the most
--   units of any limit so far: then they cannot matter. When a ring of MOST_ENTRIES is full, charges within one step of
--   time share an entry of the latest of them: see merge in log_grow.lua.
--   While every limit so far is of the calendar, one entry has the charges of a period.
--   A refusal writes nothing. The first write of a call is one that Redis may refuse for memory.
--   The exception to both: after a clock went back, entries later than now are dated to now, once. After a step back of
--   STEP_BACK or less, the time of the last charge counts as now instead.
--   The key always has an expiry, at least `keep` after the last entry. It is never deleted, not even to be
--   written anew: on a cluster, a key that is missing while its slot moves belongs to the other node. Before Redis 7.2
--   a clock that goes back within a script can end a key there: zeros and no expiry are then left, which are no charges.
--
-- Steps: read, join, locate, decide, answer, and write or grow. They stand in line, because making a function
-- costs a hundredth of a decision, each local that it captures half as much, and a call with ten arguments
-- another hundredth. The functions of log_search.lua and log_grow.lua, which the store puts before this file,
-- serve what few calls need.

local call, pack, spread, unpack = redis.call, struct.pack, unpack, struct.unpack
local request, subjects = ARGV[1], #KEYS
local mode, resolution, first_cost, first_limits, first_units, first_window = unpack('>I1I7I5I1I5I7', request)
local charge_refused, settleable = mode == 1 or mode == 5, 0

-- One subject is decided and charged in one pass. Several are looked at first, and charged when all have room.
-- Where refused calls are charged too, a third pass reports what that leaves, and so does one at no cost after a charge
-- before bookings.
local stood, pass, refusals, bookings = false, (subjects > 1 or charge_refused or looks) and 'look' or 'charge', 0, nil

while true do
  local cost, limits, at = first_cost, first_limits, 15
  local if_admitted, if_refused, n, mask, bit = nil, nil, 0, 0, 1 -- the numbers of an answer, or all of it
  local inserted = false
  local answers = not charge_refused or pass == 'report' or pass == 'left' -- the pass whose answers a refused call gets
  for s = 1, subjects do
    local key = KEYS[s]
    if s > 1 then cost, limits, at = unpack('>I5I1', request, at) end
    if pass == 'left' then cost = 0 end
    local from = at -- where the limits are
    local charges, single = cost > 0 and pass == 'charge', subjects == 1 and limits == 1 and not charge_refused and pass ~= 'left'

    -- Read: a packed log, or the header of a ring, with as many hints as there are limits.
    -- A limit of few units has a log of few entries. A packed log has 33 bytes, or 3 modulo 12, and a part of one has not.
    local header = call('GETRANGE', key, '0', limits > 3 and 51 + 26 * limits
      or first_units <= MOST_PACKED and 'PACKED_BYTES' or (limits > 1 or first_units <= 1000) and '147' or '76')
    local version, slots, keep, keep_units, head, total, last, last_units
    local born, time_there, units_there -- of a packed log, and of its oldest entry
    local hinted, marked, first, expires, packed, counts = limits, 0, 0, 0, true, false -- every limit so far is of the calendar
    if header == '' then
      slots, keep, keep_units, head, total, last, counts = 0, 0, 0, 0, 0, 0, true
    else
      if #header > 32 then version, keep, keep_units, born, time_there, units_there = unpack('>I1I7I6I7I7I5', header) end
      if version == 4 then
        if #header % 12 ~= 3 and #header ~= 33 then header = call('GETRANGE', key, '0', 'PACKED_BYTES') end
        if #header == 33 then header = header .. '\0' .. string.sub(header, 29) end -- its total
        last, last_units, total = unpack('>I7I5I6', header, #header - 17)
        hinted, head = 0, (#header - 27) / 12
        if keep_units >= 2^47 then keep_units, marked, settleable = keep_units - 2^47, 128, 2^40 end
        slots = head
      elseif #header > 50 then
        version, hinted, slots, first, keep, keep_units, expires, head, total, last =
          unpack('>I1I1I4I6I7I6I7I6I6I7', header)
        packed = false
        if hinted > 127 then hinted, marked, settleable = hinted - 128, 128, 2^40 end
      end
      if not slots or not packed and version ~= 2 and version ~= 3 or slots > 2^20 or slots % 1 > 0 then -- no log has as many
        if string.byte(header) > 0 then
          return redis.error_reply('SASH the key ' .. key .. ' holds something that is not a log of this version')
        end
        header, packed, hinted, marked, born = '', true, limits, 0, nil
        slots, keep, keep_units, head, total, last, first, expires, counts = 0, 0, 0, 0, 0, 0, 0, 0, true
      end
    end
    -- Most calls add an entry to those of a packed log: nothing has left, there is room, and the key lives long enough.
    if single and packed and charges and keep == first_window and keep_units >= first_units and (mode == 0 or marked > 0)
      and now - now % resolution > last and now - now % keep < last and now == clock
      and time_there > now - keep and total + cost <= first_units and head < MOST_PACKED then
      call('SET', key, string.sub(header, 1, 21 + 12 * head) .. pack('>I7I5I6', now, cost, total + cost), 'KEEPTTL')
      return pack('>i8I8I8I8I8I8', 0, now, first_units - total - cost, 0, time_there + keep - now, keep)
    end
    if keep >= 2^50 then keep, counts = keep - 2^50, true end
    local entries, oldest, log, ahead = packed and 21 or 51 + 26 * hinted, head - slots, nil, nil
    if oldest < first then oldest = first end

    if packed and now < last - STEP_BACK then
      slots, hinted, entries, packed = open(key).ring(limits, clock), limits, 51 + 26 * limits, false
    end
    if now < last and head > oldest and version == 3 then -- bookings
      ahead = steps(open).ahead(key, slots, entries, head, total, oldest, last, keep, now, hinted, clock)
      oldest, head, total, last = ahead.oldest, ahead.position, ahead.before, ahead.last
      if ahead.now then now, clock, stood = ahead.now, ahead.now, s > 1 end
      if ahead.moved then header = call('GETRANGE', key, '0', 50 + 26 * limits) end
      if ahead.none then
        ahead = nil
      else
        if bookings then ahead.behind = math.max(ahead.behind, bookings.behind) end
        single, bookings, settleable = false, ahead, 2^40 -- a booking can be given back
      end
    elseif now < last and head > oldest and last - now <= STEP_BACK then -- the clock trembles, and stands
      now, clock, stood = last, last, s > 1
    elseif now < last and head > oldest then -- the clock went back
      log = open(key, slots, entries, head, total)
      oldest, head, total = steps(open).redate(log, key, slots, entries, head, total, oldest, last, keep, now, hinted)
      last, log = now, nil
      header = call('GETRANGE', key, '0', 50 + 26 * limits)
    end

    -- Join: the charge is an entry of its own, at the head, or joins the last one when that is of the same step of
    -- the resolution, or no limit slides. Entries never join across a calendar boundary, and bookings ahead only at one
    -- instant.
    local position, entry_units, added = head, cost, cost
    if charges and head > oldest
      and (now == last or (counts or resolution > 1) and now == clock) then
      local step, offset = now == last or resolution > 1 and math.floor(now / resolution) == math.floor(last / resolution), at
      local joins = step or counts
      for _ = 1, joins and limits or 0 do
        local _, window, b0, b1, b2
        _, window, offset = unpack('>I5I7', request, offset)
        if window == 0 then
          _, _, b0, b1, b2, _, offset = unpack('>I7I4I7I7I7I7', request, offset)
          if last < b0 or last < b1 and now >= b1 or last < b2 and now >= b2 then joins = false end
        elseif not step then
          joins = false
        end
      end
      if joins then
        offset = entries + (head - 1) % slots * 12 + 7
        local there = packed and last_units or unpack('>I5', call('GETRANGE', key, offset, offset + 4))
        position, entry_units = head - 1, math.min(there + cost, MOST_OF_ENTRY)
        added = entry_units - there
      end
    end

    local old_keep, old_units, needed, gone, hints, room, moved = keep, keep_units, oldest, 0, '', true, limits > hinted
    for limit = 1, limits do
      local units, window, cut, stop = first_units, first_window, nil, nil
      if at > 15 then units, window, at = unpack('>I5I7', request, at) else at = 27 end
      if window > 0 then
        cut = now - window
        if cut < 0 then cut = 0 end -- a clock near 1970
        if counts then counts, old_keep = false, 0 end -- which is written
      else
        local _, b0, b1, b2, b3
        window, _, b0, b1, b2, b3, at = unpack('>I7I4I7I7I7I7', request, at)
        if now < b0 or now >= b3 then return pack('>i8I8', -1, now) end
        if now < b1 then cut, stop = b0 - 1, b1
        elseif now < b2 then cut, stop = b1 - 1, b2
        else cut, stop = b2 - 1, b3 end
      end
      if units > keep_units then
        keep_units = units
      elseif keep_units >= 2^47 and units > keep_units - 2^47 then -- bookings may leave gaps
        keep_units = 2^47 + units
      end
      if window > keep then keep = window end

      -- Locate: the first position that counts, the sum before it and its time.
      local begin, before, as_of, since = head, total, cut, 0
      if last > cut and packed then
        local units = units_there
        begin, before, since = 0, 0, time_there
        while since <= cut do
          begin, before = begin + 1, before + units
          since, units = unpack('>I7I5', header, 22 + 12 * begin)
        end
      elseif last > cut then
        begin = nil
        if limit <= hinted then
          begin, before, as_of, since = unpack('>I6I6I7I7', header, 26 + 26 * limit)
          if as_of > cut or begin < oldest or begin >= head then
            begin = nil
          elseif since <= cut then
            -- Walk: past the entries that have left since, over a few of them, and then over more.
            local position, most, found, format = begin, WALK_NEAR, nil, string.format
            repeat
              local slot, count = position % slots, most
              if count > slots - slot then count = slots - slot end
              if count > head - position then count = head - position end
              local from = entries + slot * 12
              local str = call('GETRANGE', key, format('%d', from), format('%d', from + count * 12 - 1))
              for offset = 1, count * 12, 12 do
                local time, units = unpack('>I7I5', str, offset)
                if time > cut and units > 0 then
                  found, since = position, time
                  break
                end
                position, before = position + 1, before + units
              end
              most = most + WALK_FAR - WALK_NEAR
            until found or position == head or most > WALK_FAR
            begin, before = found, before % SUM_MODULUS
            as_of, moved = cut, true
          end
        end
        if not begin then
          log = log or open(key, slots, entries, head, total)
          begin, before, since = log.locate(oldest, cut)
          as_of, moved = cut, true
        end
      end
      if window == keep and not stop and now == clock then needed, gone = begin, before end

      -- Decide: what remains, whether the call fits, and what there is to wait for.
      local remaining, retry, release, reset = units - (total - before) % SUM_MODULUS, 0, 0, 0
      if ahead then
        remaining, retry, release, reset = ahead.look(begin, before, units, window, stop, cost, at)
        if not remaining then return pack('>i8I8I8', -1, retry, 0) end
        if retry > 0 then mask, room = mask + bit, false end
        moved = true
      elseif begin < head then
        if stop then
          release, reset = stop - now, stop - now
        else
          release, reset = since + window - now, last + window - now
        end
      end
      if cost > remaining and not ahead then
        mask, room, retry = mask + bit, false, release
        if answers and not stop and cost - remaining > 1 then
          log = log or open(key, slots, entries, head, total)
          retry = log.departure(begin, before, cost - remaining) + window - now
        end
      end
      if remaining < 0 then
        if cost == 1 then
          release = retry -- the same unit has to leave
        elseif answers and not stop then
          log = log or open(key, slots, entries, head, total)
          release = log.departure(begin, before, 1 - remaining) + window - now
        end
        remaining = 0
      end

      -- Answer: what the limit answers if the call is refused, and if it is charged. One limit alone knows already.
      if not single then
        if n == 0 then -- with places for four limits: a table that grows costs more than a limit
          if_admitted, if_refused = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
        end
        if_refused[n + 1], if_refused[n + 2], if_refused[n + 3], if_refused[n + 4] = remaining, retry, release, reset
        bit = bit * 2
      end
      if cost > 0 and cost <= remaining then
        remaining, reset = remaining - cost, stop and stop - now or window
        if begin >= position then release = reset end
      end
      if single then
        if mask > 0 then mask = mask + settleable end
        if_admitted = pack('>i8I8I8I8I8I8', mask, now, remaining, retry, release, reset)
      else
        if_admitted[n + 1], if_admitted[n + 2], if_admitted[n + 3], if_admitted[n + 4] = remaining, retry, release, reset
        n = n + 4
      end

      if charges and (room or charge_refused) then
        if begin >= position then
          since, moved = now, true
          if begin > position then -- it joins one that did not count, as one that was given back before bookings
            begin, before = position, (before - entry_units + added) % SUM_MODULUS
          end
        end
        if moved and not packed then
          local hint = pack('>I6I6I7I7', begin, before, as_of, since)
          if limit == 1 then
            hints = hint
          else
            if hints == '' then hints = string.sub(header, 52, 25 + 26 * limit) end
            hints = hints .. hint
          end
        end
      end
    end

    local writes, kept = charges and (room or charge_refused), counts and keep + 2^50 or keep
    if counts and packed and position > 0 and now == clock then -- a period that no limit sees leaves
      if time_there <= now - keep then needed, gone = 1, units_there end
    end
    if writes and ahead then
      ahead.charge(position, entry_units, added, hints, limits, needed, kept, keep_units, mode, marked, expires, from)
      inserted = true
    elseif writes and packed and position - needed < MOST_PACKED then
      local value
      if needed == 0 and keep == old_keep and keep_units == old_units and (mode ~= 3 or marked > 0) then
        value = string.sub(header, 1, 21 + 12 * position)
      else
        if mode == 3 or marked > 0 then keep_units = keep_units + 2^47 end
        value = pack('>I1I7I6I7', 4, kept, keep_units, born or clock) .. string.sub(header, 22 + 12 * needed, 21 + 12 * position)
      end
      value = value .. pack(position > needed and '>I7I5I6' or '>I7I5', now, entry_units, total + added - gone)
      if now - now % keep < last and keep == old_keep and now == clock then
        call('SET', key, value, 'KEEPTTL')
      else
        call('SET', key, value, 'PX', string.format('%d', math.ceil((now + 2 * keep - clock) / 1000)))
      end
    elseif writes then
      if packed then
        slots, hinted, entries, log = open(key).ring(limits, clock), limits, 51 + 26 * limits, nil
        hints = string.rep(pack('>I6I6I7I7', 0, 0, 2^53 - 1, 0), limits)
      end
      local begins, void = position == head and position % BLOCK == 0, false
      if begins and head > oldest then -- a block adds no more to the sums than they have left
        local offset = entries + slots * 12 + 6 * (math.floor(oldest / BLOCK) % (math.ceil(slots / BLOCK) + 1))
        if (total - unpack('>I6', call('GETRANGE', key, offset, offset + 5))) % SUM_MODULUS > MOST_SUM then
          log = log or open(key, slots, entries, head, total)
          oldest, void = steps(open).saturate(log, key, slots, entries, head, total, oldest), true
        end
      end
      local full = position == head and head - oldest == slots
      local grow, rare = full and needed <= oldest, nil
      local shrink = position == head and 4 * (head - needed) + 2 * MOST_PACKED < slots
        and (slots < MOST_ENTRIES or needed == head) -- settlements look for charges that merged
      if grow then
        local was, gone = oldest, nil
        rare, log = steps(open), mode == 1 and (log or open(key, slots, entries, head, total))
        grow, oldest, gone =
          rare.make_room(log, key, slots, entries, head, total, oldest, clock, keep, total + cost, keep_units, from, limits)
        void, inserted, full = void or gone, inserted or oldest > was, head - oldest == slots
      end
      local anew = grow or shrink or limits > hinted
      if void then hints = string.rep(pack('>I6I6I7I7', 0, 0, now + keep, 0), anew and limits or hinted) end
      if position < head and limits < hinted then -- the hints of other limits may have the entry's old time
        if hints == '' then hints = string.sub(header, 52, 51 + 26 * limits) end
        hints = hints .. string.rep(pack('>I6I6I7I7', 0, 0, now + keep, 0), hinted - limits)
      end
      local entry = pack('>I7I5', now, entry_units)
      local hot = pack('>I6I6I7', position + 1, (total + added) % SUM_MODULUS, now) .. hints
      if last == 0 and clock < expires - 2 * old_keep then steps(open).reborn(key, slots, entries, clock) end
      if not anew then
        -- Write: the entry, the sum before it where a block begins, and the header.
        call('SETRANGE', key, string.format('%d', entries + position % slots * 12), entry)
        if begins then
          local block, blocks = position / BLOCK, math.ceil(slots / BLOCK) + 1
          call('SETRANGE', key, entries + slots * 12 + 6 * (block % blocks), pack('>I6', total))
        end
        call('SETRANGE', key, '32', hot)
        if version == 3 and now == clock then call('SETRANGE', key, '0', '\2') end -- no booking lies ahead any more
        if mode == 3 and marked == 0 then call('SETRANGE', key, '1', string.char(hinted + 128)) end
        if expires < now + keep or keep ~= old_keep or keep_units ~= old_units then
          expires = math.max(expires, now + 2 * keep) -- an ID may be remembered for longer
          call('PEXPIRE', key, math.ceil((expires - clock) / 1000))
          call('SETRANGE', key, '12', pack('>I7I6I7', kept, keep_units, expires))
        end
      else
        -- Grow: the value is written anew, with a longer or shorter ring or room for more hints.
        local size = slots
        rare = rare or steps(open)
        if shrink then oldest = needed elseif full and not grow then oldest = oldest + 1 end
        if grow or shrink then size = rare.larger(shrink and math.max(head - oldest, MOST_PACKED) or slots, keep_units) end
        if #hints < 26 * limits then hot = hot .. string.sub(header, 52, 51 + 26 * limits) end
        if mode == 3 then marked = 128 end
        expires = math.max(expires, now + 2 * keep)
        local cold = pack('>I1I1I4I6I7I6I7', 2, limits + marked, size, oldest, kept, keep_units, expires)
        local value, lives = cold .. hot, math.ceil((expires - clock) / 1000)
        rare.rewrite(key, slots, entries, head, total, oldest, value, size, position, entry, lives)
      end
    end
    if single and not inserted then return if_admitted end
  end

  if bookings then steps(open).wait(if_refused, n, mask, bookings.behind - now) end
  if pass == 'left' then if_admitted = steps(open).wait(if_refused, n, 0, 0) end
  if pass == 'look' or pass == 'charge' and not charge_refused then refusals = mask end
  if stood then -- others were looked at before
    stood, bookings = false, nil
  elseif pass == 'look' and (refusals == 0 or charge_refused) and not looks then
    pass = 'charge'
  elseif pass == 'charge' and refusals > 0 and mode == 1 then
    pass = 'report'
  elseif inserted and refusals == 0 then
    pass = 'left'
  else
    local answers, reply = if_admitted, pack('>i8I8', refusals, now)
    if refusals > 0 then answers, reply = if_refused, pack('>i8I8', refusals + settleable, now) end
    for i = 1, n, 32 do -- the stack of Lua ends somewhere
      local last = math.min(i + 31, n)
      reply = reply .. pack('>' .. string.rep('I8', last - i + 1), spread(answers, i, last))
    end
    return reply
  end
end
