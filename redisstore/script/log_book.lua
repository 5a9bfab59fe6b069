-- log_book.lua: one decision on the log that may be booked. The store puts log.lua where it says DECIDE.
--
-- KEYS     one log per subject
-- ARGV     1: the request, as in log.lua, and at the end I5 how far ahead it may be booked   I7 the instant from which
--             on, or zero, in microseconds
-- Returns  as in log.lua, but for the time the instant of the charge, and at the end I8 how long it is from now, or of a
--          call that was not charged, zero. Of a booking, what remains is as of its instant, and the times are from now.
--          Bit 42 of the refusals is set when only the retry times are right, because no boundaries are known for now.
--          Where the boundaries of a calendar limit do not surround an instant ahead, the instant from which on to book
--          follows the answer.
--
-- A booking is a decision at the time of the last entry, or now if that is later. If it has no room there, it is a decision
-- at the end of its retry time, because the use only falls after the last entry. Once units of a log with bookings came back,
-- it is a decision at the earliest instant at which it fits and delays no booking. (A choice asks each subject to book within
-- a microsecond, and then that instant is not looked for.)
--
-- Invariants: those of log.lua. At most MOST_AHEAD entries of a log lie ahead of now, and MOST_SUM / 4 units, so that
-- neither joins them when the log is full.

local function decide(now, clock, looks)
-- DECIDE
end

-- book decides the request in ARGV at a clock.
local function book(clock)
  local call, pack, unpack = redis.call, struct.pack, struct.unpack
  local request = ARGV[1]
  local within, from = unpack('>I5I7', request, #request - 11)
  if within == 0 then
    local reply = decide(clock, clock, false)
    if type(reply) ~= 'string' or unpack('>i8', reply) < 0 then return reply end
    return reply .. '\0\0\0\0\0\0\0\0'
  end

  -- Read how far the logs reach.
  local s, crowded, logs, at, free = math.max(clock, from), false, {}, 9, string.sub(request, 1, 8) -- at no cost
  local gaps, entered = false, {} -- whether any log may have gaps, and those that have entries
  for i, key in ipairs(KEYS) do
    local log, limits = {key = key, position = 0, before = 0}, nil
    free = free .. '\0\0\0\0\0'
    local begins = at + 5
    log.cost, limits, at = unpack('>I5I1', request, at)
    log.limits = limits
    for _ = 1, limits do
      local units, window
      units, window, at = unpack('>I5I7', request, at)
      log[#log + 1] = {units = units, window = window}
      if window == 0 then
        local _, b0, b1, b2, b3
        _, _, b0, b1, b2, b3, at = unpack('>I7I4I7I7I7I7', request, at)
        log[#log] = {units = units, b0, b1, b2, b3}
      end
    end
    free = free .. string.sub(request, begins, at - 1)
    local header = call('GETRANGE', key, '0', '50')
    local version = string.byte(header)
    if version == 4 and #header > 32 then -- packed
      local value = call('GETRANGE', key, '0', '-1')
      if #value == 33 then value = value .. '\0' .. string.sub(value, 29) end -- the total of one entry
      local last, _, total = unpack('>I7I5I6', value, #value - 17)
      if last > clock and last - clock <= STEP_BACK then return book(last) end -- it trembles
      if last > clock then
        open(key).ring(limits, clock)
        header = call('GETRANGE', key, '0', '50')
        version = string.byte(header)
      else
        local count = (#value - 27) / 12
        log.position, log.before, log.open, log.oldest, log.head = count, total, open(key, count, 21, count, total), 0, count
        if log.cost > 0 then entered[#entered + 1] = log end
      end
    end
    if #header == 51 and (version == 2 or version == 3) then
      local _, hinted, slots, first, keep, keep_units, _, head, total, last = unpack('>I1I1I4I6I7I6I7I6I6I7', header)
      hinted, keep = hinted % 128, keep % 2^50
      local entries, oldest = 51 + 26 * hinted, math.max(first, head - slots)
      log.position, log.before = head, total
      log.open, log.oldest, log.head = open(key, slots, entries, head, total), oldest, head
      if last > clock and head > oldest then
        if version == 2 and last - clock <= STEP_BACK then return book(last) end -- it trembles
        if version == 3 then
          local ahead = steps(open).ahead(key, slots, entries, head, total, oldest, last, keep, clock, hinted, clock)
          if ahead.now then return book(ahead.now) end
          log.position, log.before, log.since = ahead.position, ahead.before, ahead.since
          if ahead.since then last = ahead.ends else last = clock end
          log.open, log.oldest, log.head = ahead.log, ahead.oldest, ahead.head
          if ahead.since and log.cost > 0 then
            crowded = crowded or ahead.head - ahead.position >= MOST_AHEAD
              or (ahead.total - ahead.before) % SUM_MODULUS + log.cost > MOST_SUM / 4
            gaps = gaps or keep_units >= 2^47 and within > 1
          end
        else
          local _
          _, log.position, log.before = steps(open).redate(log.open, key, slots, entries, head, total, oldest, last, keep, clock, hinted)
          last, log.open = clock, nil
        end
        if last > s and log.cost > 0 then s = last end
      end
      if log.open and log.cost > 0 then entered[#entered + 1] = log end
    end
    logs[i] = log
  end

  -- Decide in a gap, or at the end of the queue, and then when there is room.
  local start, agree, asked, unknown = math.max(clock, from), 0, 0, nil
  local gap = gaps and not crowded and start
  while gap and agree < #entered do
    local log, last = entered[asked % #entered + 1], gap
    asked = asked + 1
    gap, unknown = steps(open).earliest(log.open, log.oldest, log.head, log.cost, log, gap)
    if unknown == start then return pack('>i8I8I8', -1, start, from) end
    if asked > WALK_LOGS * #entered then gap = nil end
    agree = gap == last and agree + 1 or 1
  end
  if gap and gap - clock <= within then s = gap end
  local waits = s > clock and 2^40 or 0 -- a booking can be given back
  local looks = s > clock and (crowded or s - clock > within)
  local reply = decide(s, clock, looks)
  if type(reply) ~= 'string' then return reply end
  local refusals = unpack('>i8', reply)
  if refusals < 0 then
    return s > clock and string.sub(reply, 1, 16) .. pack('>I8', s) or reply
  end
  local wait = 0
  for offset = 17, #reply, 32 do
    local _, retry = unpack('>I8I8', reply, offset)
    if retry > wait then wait = retry end
  end
  if refusals > 0 and not crowded and s + wait - clock <= within then
    s, looks = s + wait, false
    reply = decide(s, clock, false)
    if type(reply) ~= 'string' then return reply end
    refusals = unpack('>i8', reply)
    if refusals < 0 then return reply .. pack('>I8', s) end
  end

  local delay, out, bits, bit, answers = s - clock, '', 0, 1, reply
  if looks or refusals > 0 then
    -- What a refusal says is as of now, but for how long it holds.
    ARGV[1] = free
    answers = decide(clock, clock, true)
    ARGV[1] = request
    if type(answers) ~= 'string' then return answers end
    if unpack('>i8', answers) < 0 then answers, waits = reply, 2^40 + 2^42 end -- no boundaries are known for now
    for offset = 17, #reply, 32 do
      local _, retry = unpack('>I8I8', reply, offset)
      local remaining, _, release, reset = unpack('>I8I8I8I8', answers, offset)
      retry = retry + delay
      if crowded or retry > within then bits = bits + bit else retry = 0 end
      out, bit = out .. pack('>I8I8I8I8', remaining, retry, release, reset), bit * 2
    end
    return pack('>i8I8', bits + (waits > 0 and waits or refusals - refusals % 2^40), clock) .. out .. '\0\0\0\0\0\0\0\0'
  end

  -- The times are from now.
  for offset = 17, #reply, 32 do
    local remaining, retry, release, reset = unpack('>I8I8I8I8', reply, offset)
    out = out .. pack('>I8I8I8I8', remaining, retry, release + delay, reset + delay)
  end

  -- Write down that entries lie ahead.
  for _, log in ipairs(logs) do
    if log.cost > 0 and delay > 0 then steps(open).mark(log, clock, s) end
  end
  return pack('>i8I8', 0, s) .. out .. pack('>I8', delay)
end

local call = redis.call
local time = call('TIME')
return book(time[1] * 1000000 + time[2])
