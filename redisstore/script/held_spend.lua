-- held_spend.lua: takes the cost of a call from the leases of a key, or says what the caller has to do instead.
--
-- KEYS     1: the leases of a subject
-- ARGV     1: I5 cost   I7 longest lease   I7 way of a fetch   I1 whether the cost has counted as demand before
-- Returns  I7 now   I1 what: 1 spent, 2 refused, 3 down, 4 alone, 5 fetch, 6 wait   I7 the units left, or the time
--          until the refusal ends, or to wait   I7 how long ago the note was brought   I5 units to fetch, or 0
--          I6 one more than the units that the home had left, or 0; then the note
--
-- The value is the demand, and behind it, from the first fetch on, the leases. window.Holder and internal/window define
-- what it means.
--   demand   I1 version   I7 expires   I7 since   I5 units since then   I5 units before, in as long as a longest lease
--   left     I5 x 4 units left in the leases
--   process  12 bytes: the process of Redis in which the fetches began
--   fetch   I7 began, or 0 after one that the home refused   I7 until   I7 down until
--   refusal  I7 until   I5 cost   I7 brought   I2 length of its note, which is the end of the value
--   rest     I6 one more than the units that the home had left, or 0   I1 leases
--   lease    I7 began   I7 starts   I7 ends   I7 brought   I2 length   its note
--
-- A value that another process of Redis wrote counts as none: it came from a snapshot, an append-only file or a primary, and
-- may be from before units were spent. The address of a function identifies the process, because every process of a system
-- has its memory elsewhere. Reading the name of the server's run would double the time of a call.
--
-- Invariants: the first write is one that Redis may refuse for memory. A call that waits again writes nothing.
-- Every write leaves an expiry that is no earlier than what matters: two longest leases after the demand, one after the
-- end of a lease.

local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local cost, longest, way, again = unpack('>I5I7I7I1', ARGV[1])
local key = KEYS[1]
local value = call('GET', key) or ''
local size, expires, since, current, past = #value, 0, 0, 0, 0

-- Read.
if size > 0 then
  local version
  if size >= 25 then version, expires, since, current, past = unpack('>I1I7I7I5I5', value) end
  if version ~= 1 or size > 25 and size < 106 then
    return redis.error_reply('SASH the key ' .. key .. ' holds something that is not leases of this version')
  end
  if now < since or size > 25 and sub(value, 46, 57) ~= sub(tostring(call), -12) then -- or the clock was set back
    size, expires, since, current, past = 0, 0, 0, 0, 0
  end
end

-- rate returns how many units callers request in a longest lease at the rate of a shorter time.
local function rate(units, passed)
  local per = math.floor(units * longest / math.max(passed, 1))
  return per > MOST_UNITS and MOST_UNITS or per
end

-- Count the demand.
local counts = again == 0
if counts then
  local passed = now - since
  if passed >= 2 * longest then
    since, past, current = now, 0, 0
  elseif passed >= math.floor(longest / 8) then
    since, past, current = now, rate(current, passed), 0
  end
  current = current + cost
  if current > MOST_UNITS then current = MOST_UNITS end
end
local asked, want = past, past
if current > past then
  asked, want = current, math.max(current, rate(current, math.max(now - since, math.floor(longest / 32))))
end

-- Look through the leases: the one to spend from, the one that starts first of those that start later, and the units of
-- those that can be spent in two ways.
local spends, remains, ends_first, starts_first, brought, from, to = nil, 0, nil, nil, now, 1, 0
local usable, late, delay = 0, false, 0
if size > 25 then
  local soon, at = now + 2 * way, 107
  for i = 1, string.byte(value, 106) do
    local left = unpack('>I5', value, 21 + 5 * i)
    local starts, ends, came, length, note = unpack('>I7I7I7I2', value, at + 7)
    if starts > now then
      if not spends and left >= cost and (not starts_first or starts < starts_first) then
        starts_first, brought, from, to = starts, came, note, note + length - 1
      end
      if starts > soon then late = true end
    elseif now < ends and left >= cost and (not spends or ends < ends_first) then
      spends, remains, ends_first, brought, from, to = i, left - cost, ends, came, note, note + length - 1
    end
    if ends > soon then usable = usable + left end
    if ends > now and starts - came > delay then delay = starts - came end
    at = note + length
  end
end

-- Decide.
local what, number, fetches = 1, remains, false
if spends then
  if ends_first > now + 2 * way then usable = usable - cost end
  if asked >= 2 * cost and not late and usable * longest < (2 * way + delay) * want then
    local _, busy, down = unpack('>I7I7I7', value, 58)
    fetches = busy <= now and down <= now
  end
elseif starts_first then
  what, number = 2, starts_first - now
else
  local began, busy, down, refused, least, came, length = 0, 0, 0, 0, 0, 0, 0
  if size > 25 then began, busy, down, refused, least, came, length = unpack('>I7I7I7I7I5I7I2', value, 58) end
  if refused > now and cost >= least then
    what, number, brought, from, to = 2, refused - now, came, size - length + 1, size
  elseif down > now then
    what, number = 3, down - now
  elseif busy > now and began > 0 then
    what, number = 6, math.max(began + way - now, math.floor(way / 8), 1000)
  elseif asked < 2 * cost then
    what, number = 4, 0
  else
    what, number, fetches = 5, 0, true
  end
end

-- Write.
local lives = since + 2 * longest
if fetches and lives < now + longest then lives = now + longest end
local prolongs = expires < lives
if prolongs then expires = now + 4 * longest end
local under_way = fetches and pack('>I7I7', now, now + math.min(math.max(4 * way, 100000), longest))
if size == 0 and (counts or value ~= '') or fetches and size <= 25 then
  local new = pack('>I1I7I7I5I5', 1, expires, since, current, past)
  if fetches then
    new = new .. string.rep('\0', 20) .. sub(tostring(call), -12) .. under_way .. string.rep('\0', 35)
  end
  call('SET', key, new, 'PX', string.format('%.0f', math.ceil((expires - now) / 1000) + 1))
elseif size > 0 then
  if spends then
    call('SETRANGE', key, '8', pack('>I7I5I5c0I5', since, current, past, sub(value, 26, 20 + 5 * spends), remains))
  elseif counts then
    call('SETRANGE', key, '8', pack('>I7I5I5', since, current, past))
  end
  if fetches then call('SETRANGE', key, '57', under_way) end
  if prolongs then
    call('SETRANGE', key, '1', pack('>I7', expires))
    call('PEXPIRE', key, string.format('%.0f', math.ceil((expires - now) / 1000) + 1))
  end
end

local fetch, rest, note = 0, 0, ''
if fetches then
  fetch = want
  if size > 25 then rest = unpack('>I6', value, 100) end
end
if to >= from then note = sub(value, from, to) end
return pack('>I7I1I7I7I5I6c0', now, what, number, brought < now and now - brought or 0, fetch, rest, note)
