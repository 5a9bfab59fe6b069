-- shared.lua: what every script of a decision but log.lua has between register.lua and its own part. It reads the
-- request, makes the decision in order, and writes the answer.
--
-- KEYS     one a subject
-- ARGV     1: as in log.lua and, of a settlement, in log_settle.lua; of a call with an ID, the 8 bytes of that at the
--             end. Mode 3, for a charge that may be settled, is the same as 0. Mode 6 gives the cost back.
-- Returns  as in log.lua, or for a repetition in log_once.lua; of a settlement an empty string; in mode 6, as
-- log_reward.lua
--
-- The second part defines five functions over a subject {key, cost, limits, keep, units} and ends with
-- `return run(read, look, charge, settle, give)`:
--   read(subject)                reads the state of every limit; writes only after a clock that went back
--   look(limit, cost)            returns refused, remaining, retry, release, reset
--   charge(subject)              writes the cost, to the state that read found, and calls begin
--   settle(subject, at, change)  adds units to the charge of an earlier instant, or takes some away if change is
--                                negative; read was not called
--   give(subject)                takes up to the cost from the oldest charges that count, and returns how many units
-- A limit is {units, window, cut, stop, start, id}: what is later than cut counts; stop is the end of a calendar
-- period, or nil; id names the window in a field. keep is the longest window of the subject, units the most.
--
-- Invariant: the ID of a settlement is its first write, and that of a call its last. Redis refuses a write for memory
-- only until the script has made one.

local call, unpack = redis.call, struct.unpack
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local mode = string.byte(ARGV[1])

local function int(n) return string.format('%.0f', n) end

-- expire makes a key live for at least some microseconds more. PEXPIRE counts from the start of the script,
-- which may be in the millisecond before now.
local function expire(key, micros)
  local ms = math.ceil(micros / 1000) + 1
  if call('PTTL', key) < ms then call('PEXPIRE', key, int(ms)) end
end

-- The register of a subject is a field of a hash. zset.lua replaces these functions.
local register = {}
function register.read(key) return call('HMGET', key, 'register')[1] end
function register.write(key, value) call('HSET', key, 'register', value) end

-- begin writes down that the first charge was no later than now.
local function begin(key)
  local value = register.read(key)
  if not value then
    register.write(key, struct.pack('>I7I7', now, 0))
  elseif unpack('>I7', value) > now then -- the clock went back
    register.write(key, struct.pack('>I7', now) .. string.sub(value, 8))
  end
end

-- remembered returns the functions over the IDs of a register.
local function remembered(key, value)
  return memory(#value, HASH_IDS, function(from, to)
    return string.sub(value, from + 1, to + 1)
  end, function(from, bytes)
    value = string.sub(value, 1, from) .. bytes .. string.sub(value, from + #bytes + 1)
    register.write(key, value)
  end)
end

local function run(read, look, charge, settle, give)
  local request = ARGV[1]
  local at = 9
  local instant, subjects, becomes, ends = now, {}, nil, nil
  if mode == 2 then instant, becomes, ends = unpack('>I7I5I7', request, #request - 26) end
  for s = 1, mode == 2 and 1 or #KEYS do
    local subject, k = {key = KEYS[s], keep = 0, units = 0, limits = {}}, nil
    subject.cost, k, at = unpack('>I5I1', request, at)
    for i = 1, k do
      local l = {}
      l.units, l.window, at = unpack('>I5I7', request, at)
      if l.window > 0 then
        l.id, l.cut, l.start = int(l.window), math.max(0, instant - l.window), instant - instant % l.window
      else
        local id, b
        b = {}
        l.window, id, b[1], b[2], b[3], b[4], at = unpack('>I7I4I7I7I7I7', request, at)
        if instant < b[1] or instant >= b[4] then return struct.pack('>i8I8', -1, now) end
        local n = instant < b[2] and 1 or instant < b[3] and 2 or 3
        l.id, l.cut, l.start, l.stop = 'c' .. int(id), b[n] - 1, b[n], b[n + 1]
      end
      if l.window > subject.keep then subject.keep = l.window end
      if l.units > subject.units then subject.units = l.units end
      subject.limits[i] = l
    end
    subjects[s] = subject
  end

  if mode == 2 then
    local value, change = register.read(KEYS[1]), becomes - subjects[1].cost
    if now >= ends or not value then return '' end
    local born, floor = unpack('>I7I7', value)
    if instant < born then return '' end
    local id = string.sub(request, -8)
    if id ~= '\0\0\0\0\0\0\0\0' then
      local ids = remembered(KEYS[1], value)
      if ids.find(id) > now or change < 0 and ends <= floor then return '' end
      ids.put(id, ends, 0, now)
    end
    settle(subjects[1], instant, change)
    return ''
  end

  -- answer returns the refusals, as bits, and the answer of every limit.
  local function answer(cost_of)
    local refusals, bit, out = 0, 1, ''
    for _, subject in ipairs(subjects) do
      read(subject)
      for _, l in ipairs(subject.limits) do
        local refused, remaining, retry, release, reset = look(l, cost_of(subject))
        if refused then refusals = refusals + bit end
        bit = bit * 2
        out = out .. struct.pack('>I8I8I8I8', remaining, retry, release, reset)
      end
    end
    return refusals, out
  end

  local function nothing() return 0 end
  local function cost(subject) return subject.cost end
  if mode == 5 then cost = nothing end -- it may be above the limits, and then no time to wait is found

  if mode == 6 then
    read(subjects[1])
    local given = give(subjects[1])
    local refusals, out = answer(nothing)
    return struct.pack('>i8I8', refusals, now) .. out .. struct.pack('>I8', given)
  end

  local id = string.sub(request, at)
  if id ~= '' then
    local value, ends, refusals = register.read(KEYS[1]), 0, nil
    if value then ends, refusals = remembered(KEYS[1], value).find(id) end
    if ends > now then
      write_again(KEYS[1]) -- see log_once.lua
      local _, out = answer(nothing)
      return struct.pack('>i8I8', refusals + 2^41, ends - REPEAT_MS * 1000) .. out
    end
  end

  local refusals, out = answer(cost)
  if refusals == 0 or mode == 1 or mode == 5 then
    local charged = false
    for _, subject in ipairs(subjects) do
      if subject.cost > 0 then
        charge(subject)
        charged = true
      end
    end
    if charged and id ~= '' then
      remembered(KEYS[1], register.read(KEYS[1])).put(id, now + REPEAT_MS * 1000, refusals, now)
      expire(KEYS[1], REPEAT_MS * 1000)
    end
    if charged then
      local _
      _, out = answer(refusals > 0 and cost or nothing)
    end
  end
  return struct.pack('>i8I8', refusals, now) .. out
end
