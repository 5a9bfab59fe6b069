-- log_once.lua: one decision on one log, made once for each ID. It follows register.lua. The store puts log_book.lua where
-- it says DECIDE, which reads the clock of this script.
--
-- KEYS     1: the subject's log
-- ARGV     1: the request, as in log_book.lua, and at the end the 8 bytes of the ID
-- Returns  the answer of the decision. Of a repetition, the refusals, with bit 41, the instant of the charge and how long
--          it is from now, and the rest as of a call of no cost now.
--
-- Invariants: only a call that charged is remembered, in the same step. The ID is written last, when Redis no longer
-- refuses a write for memory. A repetition writes too, so that a client that waits for replicas after it waits for the
-- charge. A call whose ID is no longer remembered is not looked at: it may need other boundaries than a look.

local call = redis.call
local clock = call('TIME')

local function decide()
-- DECIDE
end

local key, request, repeats = KEYS[1], ARGV[1], REPEAT_MS * 1000
local id = string.sub(request, -8)

-- remembered returns the functions over the IDs of the log, and when its key expires; nothing without a log.
local function remembered()
  local header = redis.call('GETRANGE', key, '0', '50')
  if #header < 51 or string.byte(header) ~= 2 and string.byte(header) ~= 3 then return nil end
  local _, hinted, slots, _, _, _, expires = struct.unpack('>I1I1I4I6I7I6I7', header)
  return of_log(key, 51 + 26 * (hinted % 128) + slots * 12 + 6 * (math.ceil(slots / BLOCK) + 1) + 7, LOG_IDS), expires
end

local ids, reply, expires = remembered(), nil, nil
if ids then
  local ends, refusals = ids.find(id)
  if ends > clock[1] * 1000000 + clock[2] then
    -- A look: at no cost, and not booked.
    ARGV[1] = string.sub(request, 1, 8) .. '\0\0\0\0\0' .. string.sub(request, 14, -21) .. string.rep('\0', 12)
    reply = decide()
    if type(reply) ~= 'string' or struct.unpack('>i8', reply) < 0 then return reply end
    write_again(key)
    local now, at = struct.unpack('>I8', reply, 9), ends - repeats
    return struct.pack('>i8I8', refusals + 2^41, at) .. string.sub(reply, 17, -9)
      .. struct.pack('>I8', math.max(0, at - now))
  end
end

ARGV[1] = string.sub(request, 1, -9)
reply = decide()
if type(reply) ~= 'string' then return reply end -- an error
local refusals, at = struct.unpack('>i8I8', reply)
local charges = struct.unpack('>I5', request, 9) > 0
if charges and (refusals == 0 or refusals > 0 and string.byte(request) == 1) then
  local delay = struct.unpack('>I8', reply, #reply - 7)
  ids, expires = remembered()
  if not ids then -- it is packed
    open(key).ring(string.byte(request, 14), at - delay)
    ids, expires = remembered()
  end
  ids.put(id, at + repeats, refusals % 256, at - delay)
  if expires < at + repeats then
    redis.call('PEXPIRE', key, 2 * REPEAT_MS + math.ceil(delay / 1000))
    redis.call('SETRANGE', key, '25', struct.pack('>I7', at + 2 * repeats))
  end
end
return reply
