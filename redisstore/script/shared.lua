-- shared.lua: one decision on one or more subjects, all or nothing, under every algorithm but the compact log. The store
-- puts zset.lua or windows.lua around it: what that has to do on each subject stands where this file says SUBJECT.
--
-- KEYS     one a subject
-- ARGV     1: as in log.lua and, of a settlement, in log_settle.lua; of a call with an ID, the 8 bytes of that at the
--             end. Mode 3, for a charge that may be settled, is the same as 0. Mode 6 gives the cost back.
-- Returns  as in log.lua, or for a repetition in log_once.lua; of a settlement an empty string; in mode 6, as
-- log_reward.lua
--
-- A pass looks at every limit, in the order of the request. One subject is decided and charged in one pass. Several
-- are looked at first, as is a call with an ID, and charged in a second pass. If some limits refuse and others do not,
-- one more pass computes what those answer. In each pass
--   asked      is the cost that has to fit, or 0
--   adds       is what is charged to each limit that does not refuse, or if sure to each, or 0
--   writes     is whether what the pass has charged is to be written, known after the last limit
--   again      is set by a subject that has to be read again for the answer
-- A limit sets refused, remaining, retry, release and reset.
--
-- If a clock trembles, going back by STEP_BACK or less, it stands still: now is then the time of the last charge.
--
-- Invariants: a refusal writes nothing, unless the clock went back. The ID of a settlement is its first write, and that
-- of a call its last. Redis refuses a write for memory only until the script has made one.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local request, subjects = ARGV[1], #KEYS
local mode, _, first_cost, first_limits = unpack('>I1I7I5I1', request)
local asks, charges, sure = mode < 5, subjects == 1, mode == 1 or mode == 5
local single = charges and first_limits == 1 -- its answer needs no joining
local instant, lives, change, given, refusals, answered, id = now, 0, nil, nil, nil, nil, nil
local stood = false -- now has become the instant of a later charge, of a clock that trembles

-- registers returns register and write_again, which few calls need.
local function registers()
-- REGISTER
  return register, write_again
end

if mode == 2 then
  local becomes, ends
  instant, becomes, ends = unpack('>I7I5I7', request, #request - 26)
  local born, floor, known = registers()(KEYS[1])
  if born == nil or born and (now >= ends or instant < born) then return '' end
  change = becomes - first_cost
  id = string.sub(request, -8)
  if born and id ~= '\0\0\0\0\0\0\0\0' then -- what is not of this version is rejected below
    if known.find(id) > now or change < 0 and ends <= floor then return '' end
    known.put(id, ends, 0, now)
  end
end

while true do
  local mask, bit, out, at, again, charged = 0, 1, '', 15, false, false
  for s = 1, subjects do
    local key = KEYS[s]
    local cost, limits = first_cost, first_limits
    if s > 1 then cost, limits, at = unpack('>I5I1', request, at) end
    local asked, adds, writes = asks and cost or 0, charges and mode ~= 6 and cost or 0, false
-- SUBJECT
  end

  if mode == 2 then return '' end
  if not single then out = pack('>i8I8', mask, now) .. out end
  if stood then -- others were looked at before
    stood = false
  elseif at <= #request then -- an ID, which is looked up before anything is charged
    id, request = string.sub(request, at), string.sub(request, 1, at - 1)
    local register, write_again = registers()
    local born, _, known = register(KEYS[1])
    local ends, was = 0, nil
    if born then ends, was = known.find(id) end
    if ends > now then
      write_again(KEYS[1]) -- see log_once.lua
      refusals, answered = was + 2^41, ends - REPEAT_MS * 1000
      asks, charges = false, false
    else
      lives = REPEAT_MS * 1000
    end
  elseif refusals then
    return pack('>i8I8', refusals, answered or now) .. string.sub(out, 17)
  elseif not charges then
    if mode == 6 then return out .. pack('>I8', given) end
    if mask ~= 0 and not sure then return out end
    charges, sure = true, true -- several subjects
  else
    if charged and id then
      local _, _, known = registers()(KEYS[1])
      known.put(id, now + lives, mask, now)
    end
    if not again and (mask == 0 or mask == bit - 1 or not asks) then
      return mode == 6 and out .. pack('>I8', given) or out
    end
    charges, asks = false, asks and mask > 0
    if mode ~= 6 then refusals = mask end
  end
end
