-- zset.lua: the sliding log as a sorted set, one member a call, readable with ZRANGE WITHSCORES.
--
-- KEYS, ARGV, returns: see shared.lua
-- Members  <sum>:<units>  score: time in microseconds; sum: units of all members up to this one, modulo
--                         SET_MODULUS, which makes members unique and the units in any window one subtraction
--          keep           score: minus the longest window of any call so far
--          units          score: minus the most units of any limit so far
--          the register   score: minus infinity, so that it is the first member; see register.lua
--
-- Invariants: times are unique (calls in one microsecond share a member); members inside the longest
-- window stay, but the oldest of more than MOST_ENTRIES joins the next one, and so do those that SET_MOST_SUM units
-- follow; a refusal writes nothing, but a clock that went back re-dates later members to now, once; a call removes
-- at most SET_OLD old members; the key lives at least the longest window after the last member.

-- entry returns the member of a reply with one member and its score, or nil.
local function entry(reply)
  if not reply[1] then return nil end
  local sum, units = string.match(reply[1], '^(%d+):(%d+)$')
  if not sum then return nil end
  return {member = reply[1], sum = tonumber(sum), units = tonumber(units), at = tonumber(reply[2])}
end

-- name returns the name of a member.
local function name(sum, units) return int(sum) .. ':' .. int(units) end

function register.read(key)
  local first = call('ZRANGE', key, '0', '0', 'WITHSCORES')
  return first[2] == '-inf' and first[1]
end

function register.write(key, value)
  local old = register.read(key)
  call('ZADD', key, '-inf', value) -- before ZREM, which Redis never refuses for memory
  if old and old ~= value then call('ZREM', key, old) end
end

local function read(subject)
  local key = subject.key
  local last = entry(call('ZRANGE', key, '-1', '-1', 'WITHSCORES'))
  if last and last.at > now then
    local gone = last.at + tonumber(call('ZSCORE', key, 'keep') or 0) -- the score is minus the longest window
    local from = int(math.max(now, gone + 1))
    local first = entry(call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', '0', '1'))
    local before = first.sum - first.units
    local units = math.min((last.sum - before) % SET_MODULUS, MOST_OF_ENTRY)
    local member = name((before + units) % SET_MODULUS, units)
    call('ZADD', key, int(now), member)
    call('ZREMRANGEBYSCORE', key, '(' .. int(now), '+inf')
    call('ZREMRANGEBYSCORE', key, '0', int(math.min(gone, now - 1)))
    for _, other in ipairs(call('ZRANGEBYSCORE', key, int(now), int(now))) do
      if other ~= member then call('ZREM', key, other) end
    end
    last = entry(call('ZRANGE', key, '-1', '-1', 'WITHSCORES'))
  end
  subject.last = last
  for _, l in ipairs(subject.limits) do
    l.key, l.used, l.first, l.last = key, 0, nil, last
    if last and last.at > l.cut then
      l.first = entry(call('ZRANGEBYSCORE', key, '(' .. int(l.cut), '+inf', 'WITHSCORES', 'LIMIT', '0', '1'))
      l.used = (last.sum - l.first.sum + l.first.units) % SET_MODULUS
    end
  end
end

-- departure returns the time of the member with which units have left.
local function departure(l, units)
  local before = l.first.sum - l.first.units
  local x, y = call('ZRANK', l.key, l.first.member), call('ZCARD', l.key) - 1
  local found = l.first
  while x < y do
    local mid = math.floor((x + y) / 2)
    if (entry(call('ZRANGE', l.key, int(mid), int(mid), 'WITHSCORES')).sum - before) % SET_MODULUS >= units then
      y = mid
    else
      x = mid + 1
    end
  end
  return tonumber(call('ZRANGE', l.key, int(x), int(x), 'WITHSCORES')[2])
end

local function look(l, cost)
  local remaining, retry, release, reset = math.max(0, l.units - l.used), 0, 0, 0
  local over = l.used + cost - l.units -- units that have to leave first
  local function leaves(units)
    return (units > l.first.units and departure(l, units) or l.first.at) + l.window - now
  end
  if l.used > 0 then
    if l.stop then
      release, reset = l.stop - now, l.stop - now
    else
      release, reset = leaves(math.max(1, l.used - l.units + 1)), l.last.at + l.window - now
    end
  end
  if over > 0 then
    retry = l.stop and release or leaves(over)
  end
  return over > 0, remaining, retry, release, reset
end

-- trim joins up to SET_TRIM of the oldest members, while more than most units follow the oldest: these fill any limit, so
-- no answer changes until units are given back. Where refused calls are charged too, nothing is, and the members go.
local function trim(key, sum, most, cut)
  local first, units = entry(call('ZRANGE', key, '3', '3', 'WITHSCORES')), 0
  for _ = 1, SET_TRIM do
    if (sum - first.sum) % SET_MODULUS <= most then break end
    call('ZREM', key, first.member)
    if first.at > cut and mode ~= 1 then units = units + first.units end
    first = entry(call('ZRANGE', key, '3', '3', 'WITHSCORES'))
  end
  if units > 0 then
    call('ZREM', key, first.member)
    call('ZADD', key, int(first.at), name(first.sum, math.min(first.units + units, MOST_OF_ENTRY)))
  end
end

local function charge(subject)
  local key, last, sum, units = subject.key, subject.last, subject.cost, subject.cost
  if last then
    sum = last.sum
    if last.at == now then
      units = math.min(units + last.units, MOST_OF_ENTRY)
      sum = sum - last.units
    end
    sum = (sum + units) % SET_MODULUS
  end
  local member = name(sum, units)
  call('ZADD', key, int(now), member)
  if last and last.at == now and last.member ~= member then call('ZREM', key, last.member) end

  -- The key keeps what any call so far has needed.
  local keep = math.max(subject.keep, -(tonumber(call('ZSCORE', key, 'keep') or 0)))
  local most = math.max(subject.units, -(tonumber(call('ZSCORE', key, 'units') or 0)))
  call('ZADD', key, int(-keep), 'keep', int(-most), 'units')
  begin(key)
  local oldest = call('ZRANGE', key, '3', '4', 'WITHSCORES')
  local first = entry(oldest)
  local old = call('ZCOUNT', key, '0', int(now - keep)) -- always, so that a missing right shows at the first charge
  if old > 0 then
    call('ZREMRANGEBYRANK', key, '3', int(math.min(old, SET_OLD) + 2))
  elseif call('ZCARD', key) > MOST_ENTRIES + 3 then -- three hold no charge
    local next = entry({oldest[3], oldest[4]})
    call('ZREM', key, first.member, next.member)
    call('ZADD', key, oldest[4], name(next.sum, math.min(first.units + next.units, MOST_OF_ENTRY)))
  end
  local enough = mode == 1 and most or SET_MOST_SUM
  if (sum - first.sum) % SET_MODULUS > enough then trim(key, sum, enough, now - keep) end
  expire(key, keep)
end

-- settle changes the units of a member and the sums of all later ones, with two commands a member. If SET_LATER
-- others have followed, or a clock that went back has moved the charge, more units are charged to the last
-- member, and fewer are not given back: the charge leaves by itself.
local function settle(subject, at, change)
  local key = subject.key
  local later = call('ZRANGEBYSCORE', key, int(at), '+inf', 'WITHSCORES', 'LIMIT', '0', SET_LATER + 1)
  local e = entry(later)
  if not e or e.at ~= at or #later > 2 * SET_LATER then
    if change < 0 then return end
    later = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
    e = entry(later)
  end
  -- A full member may stand for more than it holds: nothing is given back from it.
  if not e or change < 0 and (e.units >= MOST_OF_ENTRY or e.units + change < 0) then return end
  change = math.min(change, math.max(0, MOST_OF_ENTRY - e.units))
  -- All are removed before any is added: a new name may be another's old one.
  for i = 1, #later, 2 do call('ZREM', key, later[i]) end
  for i = 1, #later, 2 do
    local m = entry({later[i], later[i + 1]})
    if i == 1 then m.units = m.units + change end
    if m.units > 0 then call('ZADD', key, later[i + 1], name((m.sum + change) % SET_MODULUS, m.units)) end
  end
  if change > 0 then
    local sum = (entry({later[#later - 1], later[#later]}).sum + change) % SET_MODULUS
    local cut = tonumber(later[#later]) + (tonumber(call('ZSCORE', key, 'keep')) or 0) -- the score is minus that
    trim(key, sum, SET_MOST_SUM, cut)
  end
end

-- give renames the members in between that only longer windows count, so that these do not count what is given back. It
-- looks at SET_GIVE members.
local function give(subject)
  local key, keep, cut, given = subject.key, tonumber(call('ZSCORE', subject.key, 'keep') or 0), now, 0
  for _, l in ipairs(subject.limits) do cut = math.min(cut, l.cut) end
  local from = '(' .. int(math.max(0, now + keep)) -- the score is minus the longest window
  local old, new = call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', '0', SET_GIVE), {}
  local renamed = {}
  for i = 1, #old, 2 do
    local m = entry({old[i], old[i + 1]})
    if m.at <= cut then
      renamed[#renamed + 1] = m
    else
      if given == subject.cost or m.units >= MOST_OF_ENTRY then break end
      local units = math.min(m.units, subject.cost - given)
      given, new[i] = given + units, name(m.sum, m.units - units)
      if units == m.units then new[i] = '' end
    end
  end
  if given == 0 then return 0 end
  for i = 1, #old, 2 do
    local renames = renamed[(i + 1) / 2]
    if renames then new[i] = name((renames.sum + given) % SET_MODULUS, renames.units) end
    if new[i] then call('ZREM', key, old[i]) end
  end
  for i = 1, #old, 2 do
    if new[i] and new[i] ~= '' then call('ZADD', key, old[i + 1], new[i]) end
  end
  return given
end

return run(read, look, charge, settle, give)
