-- log_reward.lua: gives units of a log back without settling a particular charge. It follows log_search.lua. The store puts
-- log.lua where it says DECIDE.
--
-- KEYS     1: the subject's log
-- ARGV     1: packed like a request of log.lua for one subject, with the units to give back as its cost
-- Returns  the answer of log.lua to a look afterwards, and I8 the units that were given back; -1 as log.lua does
--
-- The units are taken from the oldest entries that count in the widest of the limits, and none from entries that lie
-- ahead. Entries without units stay in their places, and the sums after them change. It looks at GIVE_ENTRIES entries,
-- and stops at one of MOST_OF_ENTRY units, which may stand for more than it holds.
--
-- Invariants: those of log.lua. A charge that has lost units in this way can no longer be settled to less.

local function decide()
-- DECIDE
end

local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local key, request = KEYS[1], ARGV[1]
local _, _, units, limits = unpack('>I1I7I5I1', request)
ARGV[1] = '\0' .. sub(request, 2, 8) .. '\0\0\0\0\0' .. sub(request, 14) -- at no cost
local reply = decide()
if type(reply) ~= 'string' or unpack('>i8', reply) < 0 then return reply end
local now = unpack('>I8', reply, 9)

local header = call('GETRANGE', key, '0', '50')
if header == '' or string.byte(header) == 0 then return reply .. pack('>I8', 0) end -- see the invariants of log.lua
-- What is later than cut counts in the widest limit.
local cut, at = now, 15
for _ = 1, limits do
  local from, window
  _, window, at = unpack('>I5I7', request, at)
  if window > 0 then
    from = now - window
  else
    local b0, b1, b2
    _, _, b0, b1, b2, _, at = unpack('>I7I4I7I7I7I7', request, at)
    from = (now < b1 and b0 or now < b2 and b1 or b2) - 1
  end
  cut = math.min(cut, from)
end

if string.byte(header) == 4 and #header > 32 then -- packed
  local last = #header == 33 and sub(header, 22, 28) or call('GETRANGE', key, '-18', '-12')
  if unpack('>I7', last) <= cut then return reply .. pack('>I8', 0) end
  open(key).ring(limits, now)
  header = call('GETRANGE', key, '0', '50')
end
local version, hinted, slots, first, keep, keep_units, _, head, total, last = unpack('>I1I1I4I6I7I6I7I6I6I7', header)
hinted, keep = hinted % 128, keep % 2^50
local entries, blocks, oldest = 51 + 26 * hinted, math.ceil(slots / BLOCK) + 1, math.max(first, head - slots)

-- Take the units, some entries at a time. The first write is of bytes that are there.
local log = open(key, slots, entries, head, total)
local begin = log.search(oldest, head, cut)
local position, before, stop = begin, log.sum_before(begin), math.min(begin + GIVE_ENTRIES, head)
local given, more = 0, true
while more and given < units and position < stop do
  local str, count = log.read(position, math.min(BLOCK, stop - position))
  local left, i = {}, 0
  while i < count and given < units do
    local time, there = unpack('>I7I5', str, i * 12 + 1)
    more = time <= now and there < MOST_OF_ENTRY
    if not more then break end
    local takes = math.min(there, units - given)
    i, given = i + 1, given + takes
    left[i] = pack('>I7I5', time, there - takes)
  end
  if i > 0 then call('SETRANGE', key, entries + position % slots * 12, table.concat(left)) end
  position = position + i
end
if given == 0 then return reply .. pack('>I8', 0) end

-- less returns a sum less the units that were taken before it.
local function less(sum)
  return (sum - math.min((sum - before) % SUM_MODULUS, given)) % SUM_MODULUS
end
for block = math.floor(begin / BLOCK) + 1, math.ceil(head / BLOCK) - 1 do
  local offset = entries + slots * 12 + 6 * (block % blocks)
  call('SETRANGE', key, offset, pack('>I6', less(unpack('>I6', call('GETRANGE', key, offset, offset + 5)))))
end

-- A hint before the entries still holds, and one after them by its new sum.
local hints, void = '', pack('>I6I6I7I7', 0, 0, 2^53 - 1, 0)
local old = call('GETRANGE', key, '51', entries - 1)
for offset = 1, #old, 26 do
  local hint, sum = unpack('>I6I6', old, offset)
  if hint < begin then
    hints = hints .. sub(old, offset, offset + 25)
  elseif hint >= position or version == 3 and offset == #old - 25 then -- the last is that of the present
    hints = hints .. pack('>I6I6', hint, less(sum)) .. sub(old, offset + 12, offset + 25)
  else
    hints = hints .. void
  end
end

-- Entries without units at the end are dropped, as in log_settle.lua.
total = less(total)
if position == head then
  oldest = log.search(oldest, head, last - keep)
  local time, there = nil, 0
  while head > oldest do
    time, there = unpack('>I7I5', (log.read(head - 1, 1)))
    if there > 0 then break end
    head = head - 1
  end
  last = head > oldest and time or 0
  call('SETRANGE', key, '6', pack('>I6', oldest))
end
if version == 3 then call('SETRANGE', key, '19', pack('>I6', keep_units % 2^47 + 2^47)) end -- bookings may leave gaps
call('SETRANGE', key, '32', pack('>I6I6I7', head, total, last) .. hints)
local after = decide()
if type(after) == 'string' and unpack('>i8', after) >= 0 then reply = after end -- or the clock has just passed a boundary
return reply .. pack('>I8', given)
