-- shared.lua: what comes before every script but log.lua: the request in, the answer out, and the order
-- of one decision. The argument and the answer are those of log.lua.
--
-- A script defines four functions over a subject {key, cost, limits} and ends with
-- `return run(read, look, charge, settle)`:
--   read(subject)         reads the state of every limit; writes only after a clock that went back
--   look(limit, cost)     returns refused, remaining, retry, release, reset
--   charge(subject)       writes the cost, to the state as it was read
--   settle(subject, at, more)   adds units to what was charged at an earlier instant, or takes some away
--                         when more is negative; nothing was read before
-- I1 3 first, for a charge that may be settled, is a decision like I1 0.
-- A settlement is packed like a request of one subject, with I1 2 first and I7 instant of the charge, I5 what
-- it is worth and I7 instant from which it does nothing last. It answers with an empty string. KEYS may
-- have a second key: the mark that it was applied, which is written first and lives as long as it matters.
-- A limit is {units, window, cut, stop, start, id}: stop is the end of a calendar period or nil, id names
-- the window in a field.

local call, unpack = redis.call, struct.unpack
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local always = string.byte(ARGV[1]) == 1 -- charge what was refused too

local function int(n) return string.format('%.0f', n) end

-- expire makes a key live for at least that many microseconds more. PEXPIRE counts from the start of
-- the script, which may be in the millisecond before now.
local function expire(key, micros)
  local ms = math.ceil(micros / 1000) + 1
  if call('PTTL', key) < ms then call('PEXPIRE', key, int(ms)) end
end

local function run(read, look, charge, settle)
  local request = ARGV[1]
  local mode, _, at = unpack('>I1I7', request)
  local instant, subjects, worth, ends = now, {}, nil, nil
  if mode == 2 then instant, worth, ends = unpack('>I7I5I7', request, #request - 18) end
  for s = 1, mode == 2 and 1 or #KEYS do
    local subject, k = {key = KEYS[s], keep = 0, units = 0, limits = {}}, nil
    subject.cost, k, at = unpack('>I5I1', request, at)
    for i = 1, k do
      local l = {}
      l.units, l.window, at = unpack('>I5I7', request, at)
      if l.window > 0 then
        l.id, l.cut, l.start = int(l.window), instant - l.window, instant - instant % l.window
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
    if now >= ends then return '' end
    if KEYS[2] and not call('SET', KEYS[2], '', 'NX', 'PX', int(math.ceil((ends - now) / 1000) + 1)) then return '' end
    settle(subjects[1], instant, worth - subjects[1].cost)
    return ''
  end

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

  local function cost(subject) return subject.cost end
  local refusals, out = answer(cost)
  if refusals == 0 or always then
    local charged = false
    for _, subject in ipairs(subjects) do
      if subject.cost > 0 then
        charge(subject)
        charged = true
      end
    end
    if charged then
      local _
      _, out = answer(refusals > 0 and cost or function() return 0 end)
    end
  end
  return struct.pack('>i8I8', refusals, now) .. out
end

