-- any.lua: one decision on whichever of several subjects has most room. The store puts the script of the algorithm where
-- it says DECIDE, which then decides on one subject.
--
-- KEYS     one a subject
-- ARGV     1: I1 whether the call may be booked, then per subject I2 length   the request, as in log.lua or log_book.lua;
--             a length of 0 is the same request as the one before. If the call may be booked, these requests are
--             booked within a microsecond, and those within the time that the caller has follow.
-- Returns  the answer of the decision on the chosen subject, and I2 which that is, from 0 on; or the first error, if no
--          subject can be read
--
-- It looks at the subjects in groups of CHOICE_GROUP, in order, and charges the one with most room in the first group
-- that has room: the largest share of a limit's units left after the call, by the limit that has least. The first of
-- several counts. If no subject has room, the answer is that of the one with the shortest retry time, which is booked
-- if the call may be. A call that may be booked has no room behind a booking.
--
-- A subject that cannot be read, since its key holds something else, is left out.
--
-- Invariant: at most one subject is charged, by the last decision that is made.

local keys, argument, KEYS = KEYS, ARGV[1], {''}

local function decide()
-- DECIDE
end

-- read returns one request for each subject, from an offset of the argument on, and the offset behind them.
local function read(at)
  local requests, request = {}, nil
  for i = 1, #keys do
    local length
    length, at = struct.unpack('>I2', argument, at)
    if length > 0 then request = string.sub(argument, at, at + length - 1) end
    requests[i], at = request, at + length
  end
  return requests, at
end

local function on(i, request)
  KEYS[1], ARGV[1] = keys[i], request
  return decide()
end

local unpack, sub, books = struct.unpack, string.sub, string.byte(argument) == 1

-- compare returns what a look at a subject shows: the share that would be left after the call (negative if the call does
-- not fit), and the instant before which the call cannot fit.
local function compare(request, reply)
  local least, since, now = 1, 0, unpack('>I8', reply, 9)
  local cost, limits, at = unpack('>I5I1', request, 9)
  for limit = 1, limits do
    local units, window, remaining, release, reset, _
    units, window, at = unpack('>I5I7', request, at)
    if window == 0 then at = at + 39 end -- a calendar limit
    remaining, _, release, reset = unpack('>I8I8I8I8', reply, 32 * limit - 15)
    local left = (remaining - cost) / units
    if left < least then least = left end
    if left < 0 and now + release > since then since = now + release end
    if books and reset > window then -- the last booking lies ahead
      least, since = -1, math.max(since, now + reset - window)
    end
  end
  return least, since
end

local requests, later = read(2)
local best, most, since, first = nil, nil, {}, nil
local request, looking, failure
for i = 1, #keys do
  if requests[i] ~= request then
    request = requests[i]
    looking = sub(request, 1, 8) .. '\0\0\0\0\0' .. sub(request, 14) -- at no cost
  end
  local can_read, reply = pcall(on, i, looking)
  if not can_read or type(reply) ~= 'string' then
    failure = failure or reply
  else
    if unpack('>i8', reply) < 0 then return reply end
    local left
    left, since[i] = compare(request, reply)
    if left >= 0 and (not best or left > most) then best, most = i, left end
    if not first or since[i] < since[first] then first = i end
  end
  if best and i % CHOICE_GROUP == 0 then break end
end

-- answered decides on a subject. It returns the subject's number, the answer, whether it is final, and when the call fits.
local function answered(i, request)
  local reply, retry = on(i, request), 0
  if type(reply) ~= 'string' or unpack('>i8', reply) < 0 then return i, reply, true end
  for at = 25, #reply, 32 do retry = math.max(retry, (unpack('>I8', reply, at))) end
  local final = unpack('>i8', reply) == 0
  return i, reply, final, unpack('>I8', reply, 9) + retry
end

-- soonest decides on each subject that may have the shortest retry time, and passes over the others.
local function soonest()
  local best, answer, final, when = answered(first, requests[first])
  for i = 1, #keys do
    if final then break end
    if since[i] and i ~= first and (since[i] < when or since[i] == when and i < best) then
      local _, other, decides, at = answered(i, requests[i])
      if decides or at < when or at == when and i < best then best, answer, final, when = i, other, decides, at end
    end
  end
  if not final and books then
    best, answer = answered(best, read(later)[best])
  end
  return best, answer
end

if not first then
  if type(failure) == 'table' then return failure end
  error(failure, 0)
end
local answer, final
if best then best, answer, final = answered(best, requests[best]) end
if not final then best, answer = soonest() end
if type(answer) ~= 'string' or unpack('>i8', answer) < 0 then return answer end
return answer .. struct.pack('>I2', best - 1)
