-- zset.lua: the sliding log as a sorted set, one member a call, readable with ZRANGE WITHSCORES, around shared.lua.
--
-- Members  <sum>:<units>  score: time in microseconds; sum: units of all members up to this one, modulo
--                         SET_MODULUS, which makes members unique and the units in any window one subtraction
--          the head       score: minus infinity, so that it is the first member: I7 keep, the longest window of any call
--                         so far   I6 the most units of any limit so far   I7 expires   the register, see register.lua
--
-- Invariants: times are unique (calls in one microsecond share a member); members inside the longest
-- window stay, but the oldest of more than SET_ENTRIES joins the next one, and so do those that SET_MOST_SUM units
-- follow; a refusal writes nothing, but a clock that went back re-dates later members to now, once; a call removes
-- at most SET_OLD old members; the key lives at least the longest window after the last member.

-- entry returns the time of a member, its sum and its units; nothing of one that is no charge.
local function entry(member, score)
  local sum, units = string.match(member or '', '^(%d+):(%d+)$')
  if sum then return tonumber(score), tonumber(sum), tonumber(units) end
end

-- rarely returns the functions that few calls need.
local function rarely()
  local call, step = redis.call, {}
  local function int(n) return string.format('%.0f', n) end
  local function name(sum, units) return int(sum) .. ':' .. int(units) end

  -- redate moves what is later than now to now.
  function step.redate(key, now, keep, last_at, last_sum)
    local gone = last_at - keep
    local from = call('ZRANGEBYSCORE', key, int(math.max(now, gone + 1)), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
    local _, first_sum, first_units = entry(from[1], from[2])
    local before = first_sum - first_units
    local units = math.min((last_sum - before) % SET_MODULUS, MOST_OF_ENTRY)
    local member = name((before + units) % SET_MODULUS, units)
    call('ZADD', key, int(now), member)
    call('ZREMRANGEBYSCORE', key, '(' .. int(now), '+inf')
    call('ZREMRANGEBYSCORE', key, '0', int(math.min(gone, now - 1)))
    for _, other in ipairs(call('ZRANGEBYSCORE', key, int(now), int(now))) do
      if other ~= member then call('ZREM', key, other) end
    end
  end

  -- departure returns the time of the member with whose leaving a number of units has left.
  function step.departure(key, sum, units, leave)
    local before, x, y = sum - units, call('ZRANK', key, name(sum, units)), call('ZCARD', key) - 1
    while x < y do
      local mid = math.floor((x + y) / 2)
      local _, there = entry(call('ZRANGE', key, int(mid), int(mid))[1], 0)
      if (there - before) % SET_MODULUS >= leave then
        y = mid
      else
        x = mid + 1
      end
    end
    return tonumber(call('ZRANGE', key, int(x), int(x), 'WITHSCORES')[2])
  end

  -- join makes the oldest member a part of the next one.
  function step.join(key)
    local oldest = call('ZRANGE', key, '1', '2', 'WITHSCORES')
    local _, _, units = entry(oldest[1], oldest[2])
    local _, sum, more = entry(oldest[3], oldest[4])
    call('ZREM', key, oldest[1], oldest[3])
    call('ZADD', key, oldest[4], name(sum, math.min(units + more, MOST_OF_ENTRY)))
  end

  -- trim joins up to SET_TRIM of the oldest members, while more than most units follow the oldest: these fill any limit,
  -- so no answer changes until units are given back. If refused calls are charged too, nothing is given back: it drops them.
  function step.trim(key, sum, most, cut, joins)
    local function oldest()
      local first = call('ZRANGE', key, '1', '1', 'WITHSCORES')
      return first[1], entry(first[1], first[2])
    end
    local member, at, first_sum, first_units = oldest()
    local units = 0
    for _ = 1, SET_TRIM do
      if (sum - first_sum) % SET_MODULUS <= most then break end
      call('ZREM', key, member)
      if at > cut and joins then units = units + first_units end
      member, at, first_sum, first_units = oldest()
    end
    if units > 0 then
      call('ZREM', key, member)
      call('ZADD', key, int(at), name(first_sum, math.min(first_units + units, MOST_OF_ENTRY)))
    end
  end

  -- settle changes the units of a member and the sums of all later members, with two commands a member. If more than
  -- SET_LATER members have followed, or a clock that went back has moved the charge, additional units are charged to the
  -- last member, and none are given back: the charge leaves by itself.
  function step.settle(key, keep, instant, change)
    local later = call('ZRANGEBYSCORE', key, int(instant), '+inf', 'WITHSCORES', 'LIMIT', '0', SET_LATER + 1)
    local at, _, units = entry(later[1], later[2])
    if at ~= instant or #later > 2 * SET_LATER then
      if change < 0 then return end
      later = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
      at, _, units = entry(later[1], later[2])
    end
    -- A full member may stand for more than it holds: nothing is given back from it.
    if not at or change < 0 and (units >= MOST_OF_ENTRY or units + change < 0) then return end
    change = math.min(change, math.max(0, MOST_OF_ENTRY - units))
    -- All are removed before any is added: a new name may be another's old one.
    for i = 1, #later, 2 do call('ZREM', key, later[i]) end
    local sum
    for i = 1, #later, 2 do
      at, sum, units = entry(later[i], later[i + 1])
      sum = (sum + change) % SET_MODULUS
      if i == 1 then units = units + change end
      if units > 0 then call('ZADD', key, later[i + 1], name(sum, units)) end
    end
    if change > 0 then step.trim(key, sum, SET_MOST_SUM, at - keep, true) end
  end

  -- give takes units from the oldest charges that are later than cut, and returns how many. It also renames members that
  -- only longer windows count, so that those windows do not count the units given back. It looks at SET_GIVE members.
  function step.give(key, now, keep, cut, cost)
    local from, given, renamed, new = '(' .. int(math.max(0, now - keep)), 0, {}, {}
    local old = call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', '0', SET_GIVE)
    for i = 1, #old, 2 do
      local at, sum, units = entry(old[i], old[i + 1])
      if at <= cut then
        renamed[#renamed + 1] = {sum, units}
      else
        if given == cost or units >= MOST_OF_ENTRY then break end
        local less = math.min(units, cost - given)
        given, new[i] = given + less, name(sum, units - less)
        if less == units then new[i] = '' end
      end
    end
    if given == 0 then return 0 end
    for i = 1, #old, 2 do
      local renames = renamed[(i + 1) / 2]
      if renames then new[i] = name((renames[1] + given) % SET_MODULUS, renames[2]) end
      if new[i] then call('ZREM', key, old[i]) end
    end
    for i = 1, #old, 2 do
      if new[i] and new[i] ~= '' then call('ZADD', key, old[i + 1], new[i]) end
    end
    return given
  end

  return step
end

-- REGISTER
-- register returns the time of the first charge, the floor and the functions over the IDs; nothing without a set, and
-- false for one that is not of this version.
local function register(key)
  local call = redis.call
  local head = call('ZRANGE', key, '0', '0', 'WITHSCORES')
  if not head[1] then return nil end
  if head[2] ~= '-inf' or #head[1] < 34 then return false end
  local born, floor = struct.unpack('>I7I7', head[1], 21)
  local value = head[1]
  return born, floor, memory(#value - 20, HASH_IDS, function(from, to)
    return string.sub(value, from + 21, to + 21)
  end, function(from, bytes)
    local old = value
    value = string.sub(value, 1, from + 20) .. bytes .. string.sub(value, from + #bytes + 21)
    call('ZADD', key, '-inf', value) -- before ZREM, which Redis never refuses for memory
    if old ~= value then call('ZREM', key, old) end
  end)
end

-- SUBJECT
    local keep, most, expires, born = 0, 0, 0, now + 1
    local first = call('ZRANGE', key, '0', '2', 'WITHSCORES') -- the head and the two oldest members
    local oldest_at, oldest_sum, oldest_units = entry(first[3], first[4])
    local head, last_member, last_at, last_sum, last_units = first[1], nil, nil, 0, 0
    if head then
      local last = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
      last_member, last_at, last_sum, last_units = last[1], entry(last[1], last[2])
      if first[2] ~= '-inf' or #head < 34 or #head % 16 ~= 2 or first[3] and not (oldest_at and last_at) then
        return redis.error_reply('SASH the key ' .. key .. ' holds something that is not a log of this version')
      end
      keep, most, expires, born = unpack('>I7I6I7I7', head)
      if last_at and last_at > now and last_at - now <= STEP_BACK then -- the clock trembles, and stands
        now, stood = last_at, subjects > 1
        if mode ~= 2 then instant = now end
      elseif last_at and last_at > now and mode ~= 2 then -- the clock went back
        rarely().redate(key, now, keep, last_at, last_sum)
        first = call('ZRANGE', key, '0', '2', 'WITHSCORES')
        last = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
        last_member, last_at, last_sum, last_units = last[1], entry(last[1], last[2])
        oldest_at, oldest_sum, oldest_units = entry(first[3], first[4])
      end
    end
    if not last_at then last_sum, last_units = 0, 0 end
    if mode == 2 then
      rarely().settle(key, keep, instant, change)
      return ''
    end
    local next_at, next_sum, next_units

    -- The charge is a member of its own, or joins the last one in the same microsecond.
    local units_now, added = adds, adds
    if last_at == now then
      units_now = math.min(adds + last_units, MOST_OF_ENTRY)
      added = units_now - last_units
    end
    local longest, largest, least = keep, most, now
    for _ = 1, limits do
-- LIMIT
      if window > longest then longest = window end
      if units > largest then largest = units end
      if cut < least then least = cut end

      -- Find the first member that counts.
      local used, since, sum_there, units_there = 0, nil, nil, nil
      if last_at and last_at > cut then
        if oldest_at > cut then
          since, sum_there, units_there = oldest_at, oldest_sum, oldest_units
        else
          if not next_at then next_at, next_sum, next_units = entry(first[5], first[6]) end
          since, sum_there, units_there = next_at, next_sum, next_units
          if since <= cut then
            local found = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', cut), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
            since, sum_there, units_there = entry(found[1], found[2])
          end
        end
        used = (last_sum - sum_there + units_there) % SET_MODULUS
      end

      -- Decide, and answer.
      local remaining, retry, release, reset, ends = units - used, 0, 0, 0, last_at
      local refused = asked > remaining
      if refused then
        mask = mask + bit
        if sure and adds > 0 then again = true end
      elseif adds > 0 then
        remaining, used, since, ends = remaining - added, used + adds, since or now, now
        if remaining < 0 then again = true end -- mode 5
      end
      if used > 0 and stop then
        release, reset = stop - now, stop - now
      elseif used > 0 then
        release, reset = since + window - now, ends + window - now
        if remaining < 0 and not again and 1 - remaining > units_there then
          release = rarely().departure(key, sum_there, units_there, 1 - remaining) + window - now
        end
      end
      if refused and used > 0 then
        retry = release
        if not stop and asked ~= 1 and not again then
          retry = since + window - now
          if asked - remaining > units_there then
            retry = rarely().departure(key, sum_there, units_there, asked - remaining) + window - now
          end
        end
      end
      if remaining < 0 then remaining = 0 end
      bit = bit * 2
      if single then
        out = pack('>i8I8I8I8I8I8', mask, now, remaining, retry, release, reset)
      else
        out = out .. pack('>I8I8I8I8', remaining, retry, release, reset)
      end
    end

    writes = adds > 0 and (mask == 0 or sure) and (subjects > 1 or at > #request)
    if mode == 6 then
      if charges then given, again = rarely().give(key, now, keep, least, cost), true end
    elseif writes then
      charged = true
      local sum, ends = (last_sum + added) % SET_MODULUS, now + math.max(longest, lives)
      local member, score = string.format('%.0f:%.0f', sum, units_now), string.format('%.0f', now)
      if now < born or expires < ends or longest > keep or largest > most then
        local outlives = expires < ends
        if outlives then expires = 2 * ends - now end
        local new = pack('>I7I6I7I7', longest, largest, expires, math.min(born, now))
          .. (head and string.sub(head, 28) or '\0\0\0\0\0\0\0')
        call('ZADD', key, score, member, '-inf', new)
        if head and new ~= head then call('ZREM', key, head) end
        if not head then call('ZCOUNT', key, '0', score) end -- so that a missing right shows at the first charge
        if outlives then call('PEXPIRE', key, string.format('%.0f', math.ceil((expires - now) / 1000) + 1)) end
      else
        call('ZADD', key, score, member)
      end
      if last_at == now and added > 0 then call('ZREM', key, last_member) end

      -- Make room: what no window counts goes, and the oldest member of too many joins the next.
      local gone = now - longest
      if oldest_at and oldest_at <= gone then
        if not next_at then next_at, next_sum, next_units = entry(first[5], first[6]) end
        local old = 1
        if next_at and next_at <= gone then old = math.min(call('ZCOUNT', key, '0', string.format('%.0f', gone)), SET_OLD) end
        call('ZREMRANGEBYRANK', key, '1', old)
      elseif oldest_at and (sum - oldest_sum) % SET_MODULUS >= SET_ENTRIES and call('ZCARD', key) > SET_ENTRIES + 1 then
        rarely().join(key)
        again = true
      end
      local enough = mode == 1 and largest or SET_MOST_SUM
      if oldest_at and (sum - oldest_sum) % SET_MODULUS > enough then
        rarely().trim(key, sum, enough, gone, mode ~= 1)
        again = true
      end
    end
